-- Whether a place is private follows from its name, never from what a file said of it: what does not
-- begin as a channel does is private (RFC 2811, section 2.1). The counts of all public channels
-- together, those of channel 0, are made anew.
UPDATE channels SET private = substr(name, 1, 1) NOT IN ('#', '&', '+', '!');

DELETE FROM totals WHERE channel_id = 0;
INSERT INTO totals SELECT 0, sum(events), sum(lines), sum(own), sum(replies)
FROM totals t JOIN channels c ON c.id = channel_id WHERE NOT private HAVING count(*) > 0;

DELETE FROM hours WHERE channel_id = 0;
INSERT INTO hours SELECT 0, hour, sum(lines), sum(own), sum(replies)
FROM hours JOIN channels c ON c.id = channel_id WHERE NOT private GROUP BY hour;

DELETE FROM week WHERE channel_id = 0;
INSERT INTO week SELECT 0, slot, sum(lines)
FROM week JOIN channels c ON c.id = channel_id WHERE NOT private GROUP BY slot;

DELETE FROM people WHERE channel_id = 0;
INSERT INTO people SELECT 0, nick, own, sum(lines)
FROM people JOIN channels c ON c.id = channel_id WHERE NOT private GROUP BY nick, own;
