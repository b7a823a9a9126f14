-- The watermarks of a room, as the code calls them.
ALTER TABLE memory_rooms RENAME COLUMN folded TO summary;
ALTER TABLE memory_rooms RENAME COLUMN told TO episodes;
ALTER TABLE memory_rooms RENAME COLUMN studied TO facts;
