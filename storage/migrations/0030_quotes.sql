-- Which lines of people our texts repeat, by the ids of these lines, so that a text goes with whom it
-- quotes. `answer_id` is a line of our own, or the question that lines of our own answer.
CREATE TABLE quotes (
    answer_id INTEGER NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    line_id INTEGER NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    PRIMARY KEY (answer_id, line_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX quotes_line ON quotes (line_id);

-- JSON lists of such ids. Those of turns are in their messages.
ALTER TABLE runs ADD COLUMN quotes TEXT NOT NULL DEFAULT '[]';
ALTER TABLE pastes ADD COLUMN quotes TEXT NOT NULL DEFAULT '[]'; -- and the question's id
ALTER TABLE outbox ADD COLUMN quotes TEXT NOT NULL DEFAULT '[]';

-- Quotations were recognised by hashes of words, and how many there were was told.
ALTER TABLE erasures DROP COLUMN quote_key;
ALTER TABLE erasures DROP COLUMN quotes;
ALTER TABLE erasures DROP COLUMN removed_replies;
ALTER TABLE erasures DROP COLUMN removed_turns;
