-- Reports of research. `content` (JSON) has the steps with their claims, each with the ids of the log
-- lines that say it, and no words of those lines.
CREATE TABLE reports (
    id TEXT PRIMARY KEY,
    network TEXT NOT NULL, -- where it was asked, as is channel
    channel TEXT NOT NULL COLLATE NOCASE,
    owner TEXT NOT NULL, -- who asked (JSON), as the server showed them
    person TEXT NOT NULL, -- the key of who asked
    asked INTEGER NOT NULL, -- id of the line with the question, 0 where such lines are not logged
    question TEXT NOT NULL,
    scope TEXT NOT NULL, -- JSON list of the [network, channel] that they may read, null for all public
    is_open INTEGER NOT NULL, -- 1 until it is finished
    content TEXT NOT NULL,
    version INTEGER NOT NULL, -- grows when claims are taken out
    time INTEGER NOT NULL -- microseconds since 1970-01-01 UTC
) STRICT, WITHOUT ROWID;
CREATE INDEX reports_person ON reports (person, is_open);
