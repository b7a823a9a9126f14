-- The order in which events came (storage/chat_log/arrivals.py). The sequence never goes back.
CREATE TABLE arrivals (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id INTEGER NOT NULL
) STRICT;
CREATE INDEX arrivals_event ON arrivals (event_id);
INSERT INTO arrivals (event_id)
SELECT id FROM (SELECT id FROM events ORDER BY id DESC LIMIT 1000) ORDER BY id;
