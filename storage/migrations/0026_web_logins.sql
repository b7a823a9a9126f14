-- Browsers that are logged in to the web tendril. `id` is the SHA-256 of a cookie's random value,
-- `proof` says by which token it was opened, without telling that token.
CREATE TABLE web_logins (
    id TEXT PRIMARY KEY,
    proof TEXT NOT NULL,
    expires INTEGER NOT NULL
) STRICT;
