-- Who does not want to be logged: a services account (then `user` and `host` are '', and `nick` is
-- the one that they had), or else a whole nick!user@host. Of those who asked before there were
-- masks only the nick is known: their user and host are '*'. Names are folded.
CREATE TABLE unlogged_people (
    network TEXT NOT NULL,
    account TEXT NOT NULL,
    nick TEXT NOT NULL,
    user TEXT NOT NULL,
    host TEXT NOT NULL,
    PRIMARY KEY (network, account, nick, user, host)
) STRICT, WITHOUT ROWID;
INSERT INTO unlogged_people SELECT network, account, nick, '', '' FROM unlogged
WHERE account IS NOT NULL;
INSERT INTO unlogged_people SELECT network, '', nick, '*', '*' FROM unlogged
WHERE account IS NULL;
DROP TABLE unlogged;
ALTER TABLE unlogged_people RENAME TO unlogged;
