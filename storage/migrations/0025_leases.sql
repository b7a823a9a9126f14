-- Which of several processes of a kind does the work: one holder for each name until `expires`, by
-- the database's clock. `fence` grows with each holder; all that was to be logged until `settled`
-- is in the log; `known_as` is what the holder is called where it works.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    fence INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    known_as TEXT NOT NULL DEFAULT ''
) STRICT;
