-- Whose the facts are that people on IRC asked for when a nick alone was enough for that: they belong
-- to the account, or nick, user name and host, which the nick had on the channel at that time, or
-- whose the private room is. Where the log does not tell, or tells two, a fact stays nobody's, as
-- does one that an opt-out of its nick hides. On other media, where the bot does nothing but speak,
-- a nick is still enough.
CREATE TABLE owners (id INTEGER PRIMARY KEY, person TEXT NOT NULL) STRICT;
INSERT INTO owners
SELECT id, replace(replace(replace(min(person), '[', '{'), ']', '}'), '\', '|') FROM (
    SELECT m.id, CASE WHEN substr(c.name, 1, 1) NOT IN ('#', '&', '+', '!', '@')
        AND (c.name LIKE '~%' OR c.name LIKE '%!%') THEN lower(c.name)
        ELSE coalesce('~' || lower(e.account), m.subject || '!' || lower(e."user" || '@' || e.host))
        END AS person
    FROM memories m
    JOIN channels c ON lower(m.room) = lower(c.network) || '/'
        || replace(replace(lower(c.name), '%', '%25'), '/', '%2f')
    LEFT JOIN events e ON e.channel_id = c.id AND e.type = 'PRIVMSG' AND e.own = 0
        AND e.id BETWEEN m.time / 1000 - 120000 AND m.time / 1000 + 120000 AND e."user" <> ''
        AND replace(replace(replace(lower(e.nick), '[', '{'), ']', '}'), '\', '|') = m.subject
    WHERE m.layer = 'fact' AND m.manual = 1 AND m.subject = m.source
        AND m.subject NOT LIKE '~%' AND m.subject NOT LIKE '%!%'
        AND NOT EXISTS (SELECT 1 FROM unlogged u WHERE u.network = c.network AND u.nick = m.subject)
        AND EXISTS (SELECT 1 FROM events WHERE own = 1 AND type <> 'PRIVMSG')
) AS found
GROUP BY id
HAVING count(DISTINCT person) = 1;
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
