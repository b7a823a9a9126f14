-- The tendril that is to say a message; until now it was always that of IRC.
ALTER TABLE outbox ADD COLUMN tendril TEXT NOT NULL DEFAULT 'irc';
