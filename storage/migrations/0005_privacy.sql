-- Who does not want to be logged: a nick, and the services account of whoever said so, if they were
-- logged in; only that account can take it back then. Names are folded
-- (storage/chat_log/opt_outs.py).
CREATE TABLE unlogged (
    network TEXT NOT NULL,
    nick TEXT NOT NULL,
    account TEXT,
    PRIMARY KEY (network, nick)
) STRICT, WITHOUT ROWID;
