-- Memories are found by their words. The job of a room now makes all that is due there; those of a
-- single kind, which nothing runs any more, are added again when a tendril starts.
DROP TABLE memory_vectors;
DELETE FROM jobs WHERE kind LIKE 'memory.%';
