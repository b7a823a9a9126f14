-- Tokens that a tendril has spent: on what ("answer", "summary", ...), by UTC day, room and
-- conversation. Names of conversations are names of people; after a while they become "".
CREATE TABLE spending (
    day TEXT NOT NULL,
    room TEXT NOT NULL,
    conversation TEXT NOT NULL,
    purpose TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL, -- of the prompts' tokens
    completion INTEGER NOT NULL,
    PRIMARY KEY (day, room, conversation, purpose)
) STRICT, WITHOUT ROWID;
