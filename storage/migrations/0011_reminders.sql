-- Whoever has no account is who has the nick, the user name and the host.
CREATE TABLE reminders (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- people name it: a number is never another's later
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE, -- where it is said; a nick where it is private
    private INTEGER NOT NULL,
    nick TEXT NOT NULL COLLATE NOCASE,
    user TEXT NOT NULL,
    host TEXT NOT NULL COLLATE NOCASE,
    account TEXT COLLATE NOCASE,
    text TEXT NOT NULL,
    due INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC
    rule TEXT NOT NULL, -- cron expression, or '' for one that comes once
    zone TEXT NOT NULL
) STRICT;
CREATE INDEX reminders_due ON reminders (due);
