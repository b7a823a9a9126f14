-- Whose the facts are that people asked for when a nick alone was enough for that: they belong to
-- the account, or nick, user name and host, which the nick had on the channel just before, or whose
-- the private room is. Where the log does not tell, or tells two, a fact stays nobody's.
CREATE TABLE owners (id INTEGER PRIMARY KEY, person TEXT NOT NULL) STRICT;
INSERT INTO owners
SELECT m.id, min(coalesce('~' || lower(e.account), m.subject || '!' || lower(e."user" || '@' || e.host)))
FROM memories m
JOIN channels c ON lower(c.network) || '/' || lower(c.name) = lower(m.room)
JOIN events e ON e.channel_id = c.id AND e.id BETWEEN m.time / 1000 - 120000 AND m.time / 1000
WHERE m.layer = 'fact' AND m.manual = 1 AND m.subject = m.source
    AND m.subject NOT LIKE '~%' AND m.subject NOT LIKE '%!%'
    AND c.name NOT LIKE '~%' AND c.name NOT LIKE '%!%'
    AND e.type = 'PRIVMSG' AND e.own = 0 AND lower(e.nick) = m.subject AND e."user" <> ''
GROUP BY m.id
HAVING count(DISTINCT coalesce('~' || lower(e.account), lower(e."user" || '@' || e.host))) = 1;
INSERT INTO owners
SELECT m.id, min(lower(c.name)) FROM memories m
JOIN channels c ON lower(c.network) || '/' || lower(c.name) = lower(m.room)
WHERE m.layer = 'fact' AND m.manual = 1 AND m.subject = m.source
    AND m.subject NOT LIKE '~%' AND m.subject NOT LIKE '%!%'
    AND (c.name LIKE '~%' OR c.name LIKE '%!%')
GROUP BY m.id;
-- Of facts with one owner and key the newest counts, and one that has been said again since.
DELETE FROM owners WHERE EXISTS (
    SELECT 1 FROM memories own
    JOIN memories other ON other.room = own.room AND other.key = own.key AND other.layer = 'fact'
    LEFT JOIN owners theirs ON theirs.id = other.id
    WHERE own.id = owners.id AND other.id <> own.id AND (
        other.subject = owners.person OR (theirs.person = owners.person AND other.id > own.id)));
UPDATE memories SET source = (SELECT person FROM owners WHERE owners.id = memories.id)
    WHERE id IN (SELECT id FROM owners);
UPDATE memories SET subject = source WHERE id IN (SELECT id FROM owners);
DROP TABLE owners;
