-- Reminders and cron jobs whose owner, or an admin, has paused them; when a cron job is due next, NULL
-- if it is not configured any more.
ALTER TABLE reminders ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schedule ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
ALTER TABLE schedule ADD COLUMN next_run INTEGER;
-- A browser's conversations are in a room of the network "web", as those of people who sign in are.
UPDATE conversations SET name = 'web/visitor!browser@' || substr(name, 9),
    room = 'web/visitor!browser@' || substr(room, 9) WHERE room LIKE 'browser/%';
UPDATE memories SET room = 'web/visitor!browser@' || substr(room, 9) WHERE room LIKE 'browser/%';
UPDATE memories SET conversation = 'web/visitor!browser@' || substr(conversation, 9)
    WHERE conversation LIKE 'browser/%';
UPDATE memory_sources SET conversation = 'web/visitor!browser@' || substr(conversation, 9)
    WHERE conversation LIKE 'browser/%';
UPDATE memory_rooms SET room = 'web/visitor!browser@' || substr(room, 9)
    WHERE room LIKE 'browser/%';
UPDATE memory_gaps SET room = 'web/visitor!browser@' || substr(room, 9) WHERE room LIKE 'browser/%';
UPDATE skills SET room = 'web/visitor!browser@' || substr(room, 9) WHERE room LIKE 'browser/%';
