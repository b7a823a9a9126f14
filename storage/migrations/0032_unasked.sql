-- Where the tendril speaks unasked: when it last asked the model whether to (microseconds since
-- 1970-01-01 UTC), and whether it is silent there until an admin wants it again.
CREATE TABLE unasked (
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    asked INTEGER NOT NULL,
    muted INTEGER NOT NULL,
    PRIMARY KEY (network, channel)
) STRICT, WITHOUT ROWID;
INSERT INTO unasked SELECT DISTINCT network, channel, 0, 1 FROM put_off WHERE until IS NULL;
DROP TABLE signals;
DROP TABLE put_off;
DROP TABLE contacts;
DROP TABLE energy;
