-- The words of a run are those of its turn, so that a run itself has none to forget.
ALTER TABLE runs DROP COLUMN worded;
ALTER TABLE runs DROP COLUMN question;
ALTER TABLE runs DROP COLUMN answer;
ALTER TABLE runs ADD COLUMN model_profile TEXT NOT NULL DEFAULT ''; -- tiny, small or capable
ALTER TABLE runs ADD COLUMN cut INTEGER NOT NULL DEFAULT 0; -- whether the answer ends too early
CREATE INDEX runs_anchor ON runs (anchor) WHERE anchor > 0;

ALTER TABLE run_steps ADD COLUMN began INTEGER NOT NULL DEFAULT 0; -- milliseconds into the run
ALTER TABLE run_steps ADD COLUMN call_id TEXT NOT NULL DEFAULT ''; -- of a tool call, in the turn
ALTER TABLE run_steps ADD COLUMN finish_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE run_steps ADD COLUMN filters TEXT NOT NULL DEFAULT '[]'; -- JSON list of names
ALTER TABLE run_steps ADD COLUMN parts TEXT NOT NULL DEFAULT '[]'; -- JSON list of [name, tokens, lines]
