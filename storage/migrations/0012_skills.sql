-- Skills: what people have taught the bot, by room, and how useful all skills were. Those that come
-- as files have the room "" and no text here.
CREATE TABLE skills (
    room TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL, -- when to use it
    body TEXT NOT NULL, -- how to do it
    teacher TEXT NOT NULL COLLATE NOCASE,
    time INTEGER NOT NULL, -- when it was taught, microseconds since 1970-01-01 UTC
    uses INTEGER NOT NULL DEFAULT 0,
    score REAL NOT NULL DEFAULT 0.5, -- how often an answer with it came out well, from 0 to 1
    PRIMARY KEY (room, name)
) STRICT, WITHOUT ROWID;
