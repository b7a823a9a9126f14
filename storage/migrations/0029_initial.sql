-- All tables as of schema version 29. In PostgreSQL, INTEGER PRIMARY KEY becomes an identity; an id
-- that the database never makes has its PRIMARY KEY in a line of its own.

-- The log (storage/chat_log/).
CREATE TABLE channels (
    id INTEGER PRIMARY KEY,
    network TEXT NOT NULL,
    name TEXT NOT NULL COLLATE NOCASE,
    private INTEGER NOT NULL,
    UNIQUE (network, name)
) STRICT;

-- Ids follow time: an event's id is its time in milliseconds since 1970, or the next one free.
CREATE TABLE events (
    id INTEGER,
    channel_id INTEGER NOT NULL REFERENCES channels (id),
    type TEXT NOT NULL,
    time INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC
    nick TEXT NOT NULL COLLATE NOCASE,
    "user" TEXT NOT NULL,
    host TEXT NOT NULL,
    account TEXT,
    target TEXT NOT NULL,
    text TEXT NOT NULL,
    msgid TEXT,
    own INTEGER NOT NULL,
    reply_to INTEGER,
    PRIMARY KEY (id)
) STRICT;

-- The order in which events came (storage/chat_log/arrivals.py). The sequence never goes back. An
-- event is seldom looked for in a table of 20,000 rows, so there is no index that would be written
-- with each line.
CREATE TABLE arrivals (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id INTEGER NOT NULL
) STRICT;

-- One full-text table of words, in SQLite also one of parts of words, for each stretch of ids
-- (storage/text_index/ makes them).
CREATE TABLE partitions (
    number INTEGER,
    lines INTEGER NOT NULL,
    removed INTEGER NOT NULL, -- lines whose words the index's files still hold somewhere
    drift INTEGER NOT NULL, -- the most that an id is ahead of its event's time, milliseconds
    PRIMARY KEY (number)
) STRICT;

-- What is counted as it is written (storage/log_index.py). The channel 0 is all public ones together.
CREATE TABLE totals (
    channel_id INTEGER,
    events INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    own INTEGER NOT NULL,
    replies INTEGER NOT NULL,
    PRIMARY KEY (channel_id)
) STRICT;
CREATE TABLE hours (
    channel_id INTEGER NOT NULL,
    hour INTEGER NOT NULL, -- since 1970
    lines INTEGER NOT NULL,
    own INTEGER NOT NULL,
    replies INTEGER NOT NULL,
    PRIMARY KEY (channel_id, hour)
) STRICT, WITHOUT ROWID;
CREATE TABLE week (
    channel_id INTEGER NOT NULL,
    slot INTEGER NOT NULL, -- hours since Monday 0:00
    lines INTEGER NOT NULL,
    PRIMARY KEY (channel_id, slot)
) STRICT, WITHOUT ROWID;
CREATE TABLE people (
    channel_id INTEGER NOT NULL,
    nick TEXT NOT NULL COLLATE NOCASE,
    own INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    PRIMARY KEY (channel_id, nick, own)
) STRICT, WITHOUT ROWID;
CREATE INDEX people_lines ON people (channel_id, lines);
CREATE TABLE people_days (
    nick TEXT NOT NULL COLLATE NOCASE,
    channel_id INTEGER NOT NULL,
    day INTEGER NOT NULL, -- since 1970
    own INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    replies INTEGER NOT NULL,
    PRIMARY KEY (nick, channel_id, day, own)
) STRICT, WITHOUT ROWID;
CREATE INDEX people_days_day ON people_days (channel_id, day, lines, replies);

-- What lines mean, as one embedding model sees it; a vector goes with its event.
CREATE TABLE vectors (
    event_id INTEGER REFERENCES events (id) ON DELETE CASCADE,
    vector BLOB NOT NULL, -- float32, of length one
    PRIMARY KEY (event_id)
) STRICT;
-- One row: the model of all vectors, and whether they have once reached the oldest line.
CREATE TABLE vector_model (name TEXT NOT NULL, complete INTEGER NOT NULL) STRICT;

-- Who does not want to be logged: a services account (then `user` and `host` are '', and `nick` is
-- the one that they had), or else a whole nick!user@host. Of those who asked before there were
-- masks only the nick is known: their user and host are '*'. Names are folded.
CREATE TABLE unlogged (
    network TEXT NOT NULL,
    account TEXT NOT NULL,
    nick TEXT NOT NULL,
    "user" TEXT NOT NULL,
    host TEXT NOT NULL,
    PRIMARY KEY (network, account, nick, "user", host)
) STRICT, WITHOUT ROWID;

-- Conversations and their turns (storage/memory/conversations.py). A room is what a conversation
-- shares with others, as its channel; one that shares nothing is its own room. `person` is who it is
-- with, as memory compares names; '' is not known yet.
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    log_start INTEGER NOT NULL DEFAULT 0, -- first event that the prompt still shows
    turn_start INTEGER NOT NULL DEFAULT 0, -- first turn that the prompt still shows
    room TEXT NOT NULL DEFAULT '',
    person TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX conversations_room ON conversations (room);
-- One row is one whole turn, so that a tool call and its result never part. Ids are never used twice:
-- what has been summed up is known by the last one.
CREATE TABLE turns (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    anchor INTEGER NOT NULL, -- event of the question; 0 where there is no log
    time INTEGER NOT NULL,
    messages TEXT NOT NULL, -- JSON list of OpenAI messages, the question first
    related TEXT NOT NULL DEFAULT '[]' -- ids of earlier lines shown with the question: JSON list
) STRICT;
CREATE INDEX turns_conversation ON turns (conversation_id, id);

-- What is remembered beside turns (storage/memory/memories.py): facts and notes as somebody said
-- them, episodes and summaries made of turns. Nothing of one room is ever read for another.
CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    layer TEXT NOT NULL, -- fact, note, episode or summary
    room TEXT NOT NULL,
    subject TEXT NOT NULL, -- whom it is about; '' when nobody alone
    key TEXT NOT NULL, -- of a fact
    text TEXT NOT NULL,
    source TEXT NOT NULL, -- who said it
    manual INTEGER NOT NULL, -- whether somebody asked for it to be remembered
    confidence REAL NOT NULL,
    conversation TEXT NOT NULL, -- in which it was said; '' when it was made of several
    first_turn INTEGER NOT NULL, -- the first and the last turn that it is made of; 0 when it was
    last_turn INTEGER NOT NULL, -- said in the turn that goes on
    begun INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC of the oldest that is in it
    time INTEGER NOT NULL -- and when it was written
) STRICT;
CREATE UNIQUE INDEX memories_fact ON memories (room, subject, key) WHERE layer = 'fact';
CREATE UNIQUE INDEX memories_summary ON memories (room) WHERE layer = 'summary';
CREATE INDEX memories_room ON memories (room, layer);
CREATE INDEX memories_conversation ON memories (conversation);
-- Whose words an episode or a summary is made of.
CREATE TABLE memory_sources (
    memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
    conversation TEXT NOT NULL,
    person TEXT NOT NULL,
    PRIMARY KEY (memory_id, conversation, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX memory_sources_conversation ON memory_sources (conversation);
CREATE TABLE memory_vectors (
    memory_id INTEGER REFERENCES memories (id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    vector BLOB NOT NULL, -- float32, of length one
    PRIMARY KEY (memory_id)
) STRICT;
-- How far each room has been gone through: the last turn that is in the summary, in an episode, or
-- was looked at for facts.
CREATE TABLE memory_rooms (
    room TEXT PRIMARY KEY,
    folded INTEGER NOT NULL DEFAULT 0,
    told INTEGER NOT NULL DEFAULT 0,
    studied INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL, -- grows when something is forgotten: what was read is void
    wanted INTEGER NOT NULL DEFAULT 0, -- the turn to which the summary is to reach again
    shown TEXT NOT NULL DEFAULT '', -- JSON: what prompts in this room show of it
    shown_turn INTEGER NOT NULL DEFAULT 0 -- the newest turn when that was chosen
) STRICT, WITHOUT ROWID;
-- Turns whose episode was deleted, as somebody in it was forgotten: another is made of the rest.
CREATE TABLE memory_gaps (
    room TEXT NOT NULL,
    first_turn INTEGER NOT NULL,
    last_turn INTEGER NOT NULL,
    PRIMARY KEY (room, first_turn)
) STRICT, WITHOUT ROWID;

-- What people have taught the bot, by room, and how useful all skills were. Those that come as files
-- have the room "" and no text here.
CREATE TABLE skills (
    room TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL, -- when to use it
    body TEXT NOT NULL, -- how to do it
    teacher TEXT NOT NULL COLLATE NOCASE,
    time INTEGER NOT NULL, -- when it was taught, microseconds since 1970-01-01 UTC
    uses INTEGER NOT NULL DEFAULT 0,
    score REAL NOT NULL DEFAULT 0.5, -- how often an answer with it came out well, from 0 to 1
    PRIMARY KEY (room, name)
) STRICT, WITHOUT ROWID;

-- What each turn did (storage/runs/).
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE, -- the same for all attempts at one run
    conversation TEXT NOT NULL,
    private INTEGER NOT NULL,
    anchor INTEGER NOT NULL, -- log event of the question; 0 where there is none
    profile TEXT NOT NULL,
    model TEXT NOT NULL,
    started INTEGER NOT NULL,
    ended INTEGER, -- NULL while it runs
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    prompt INTEGER NOT NULL DEFAULT 0,
    cached INTEGER NOT NULL DEFAULT 0,
    completion INTEGER NOT NULL DEFAULT 0,
    iterations INTEGER NOT NULL DEFAULT 0,
    forced INTEGER NOT NULL DEFAULT 0,
    worded INTEGER NOT NULL, -- whether words are kept
    question TEXT NOT NULL DEFAULT '',
    answer TEXT NOT NULL DEFAULT '',
    caller TEXT NOT NULL DEFAULT '' -- key of the run of another tendril in which it was asked for
) STRICT;
CREATE INDEX runs_started ON runs (started);
CREATE INDEX runs_open ON runs (outcome) WHERE outcome = 'running';
CREATE INDEX runs_of_caller ON runs (caller) WHERE caller != '';
CREATE TABLE run_steps (
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL, -- model or tool
    name TEXT NOT NULL,
    ok INTEGER NOT NULL,
    ms INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;
-- Written before an effect (without a result) and after it, so that none happens twice.
CREATE TABLE effects (
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    tool TEXT NOT NULL,
    result TEXT,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;

-- Work that is done later, whatever happens meanwhile (storage/queues/jobs.py). An id is never used
-- twice, so nothing waits for a job that is not its own.
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL, -- JSON object
    key TEXT UNIQUE, -- the same key is the same job
    lane TEXT NOT NULL, -- of one lane, unless it is empty, one job runs at a time
    priority INTEGER NOT NULL, -- the lowest number runs first
    state TEXT NOT NULL, -- pending, running, waiting, done, failed or dead
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    depends_on INTEGER,
    created INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC, as are the others
    run_at INTEGER NOT NULL,
    lease INTEGER, -- until when a running job is its worker's
    finished INTEGER,
    worker TEXT NOT NULL DEFAULT '',
    result TEXT, -- JSON
    error TEXT NOT NULL DEFAULT '',
    -- How often it was claimed. It only grows, while `attempts` begins again when a failed job is
    -- retried, so that nobody who had claimed the job before can end a later attempt.
    claims INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX jobs_next ON jobs (state, run_at);
CREATE INDEX jobs_parent ON jobs (depends_on) WHERE depends_on IS NOT NULL;
CREATE TABLE schedule (job TEXT PRIMARY KEY, last_run INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- Whoever has no account is who has the nick, the user name and the host.
CREATE TABLE reminders (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- people name it: a number is never another's later
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE, -- where it is said; a nick where it is private
    private INTEGER NOT NULL,
    nick TEXT NOT NULL COLLATE NOCASE,
    "user" TEXT NOT NULL,
    host TEXT NOT NULL COLLATE NOCASE,
    account TEXT COLLATE NOCASE,
    text TEXT NOT NULL,
    due INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC
    rule TEXT NOT NULL, -- cron expression, or '' for one that comes once
    zone TEXT NOT NULL,
    anchor INTEGER NOT NULL DEFAULT 0, -- the event that asked for it, 0 where it is not logged
    asks INTEGER NOT NULL DEFAULT 0 -- whether the text is a question to the model
) STRICT;
CREATE INDEX reminders_due ON reminders (due);
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE, -- the same message is posted once, however often it is tried
    network TEXT NOT NULL,
    channel TEXT NOT NULL,
    text TEXT NOT NULL,
    time INTEGER NOT NULL,
    sent INTEGER,
    tendril TEXT NOT NULL DEFAULT 'irc' -- the one that is to say it
) STRICT;
CREATE INDEX outbox_waiting ON outbox (id) WHERE sent IS NULL;
-- Questions that tendrils ask one another; a row lives as long as who asks waits for the answer.
CREATE TABLE peer_questions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tendril TEXT NOT NULL,
    question TEXT NOT NULL,
    deadline INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0,
    answer TEXT
);
-- Which of several processes of a kind does the work: one holder for each name until `expires`, by
-- the database's clock. `fence` grows with each holder; all that was to be logged until `settled`
-- is in the log; `known_as` is what the holder is called where it works.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    fence INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    known_as TEXT NOT NULL DEFAULT ''
) STRICT;
-- Long answers; whoever knows the id may read one until it expires.
CREATE TABLE pastes (
    id TEXT PRIMARY KEY,
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    nick TEXT NOT NULL COLLATE NOCASE, -- who asked
    time INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC, as is expires
    expires INTEGER NOT NULL,
    text TEXT NOT NULL,
    rest TEXT NOT NULL -- what has not been said yet
) STRICT, WITHOUT ROWID;
CREATE INDEX pastes_place ON pastes (network, channel, time);
CREATE INDEX pastes_expires ON pastes (expires);

-- What admins have set while the bot runs. The channel * stands for every channel of the network.
CREATE TABLE channel_settings (
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (network, channel, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE audit (
    time INTEGER NOT NULL,
    network TEXT NOT NULL,
    channel TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX audit_time ON audit (time);
-- Forgettings that are not finished (storage/privacy/pending_erasures.py). A row is written before
-- anything is removed and goes last, so that whatever interrupts a forgetting, it can be finished.
CREATE TABLE erasures (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: a process may still work on the last
    time INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC
    actor TEXT NOT NULL, -- who had it done, as the audit log names them
    network TEXT, -- NULL: all
    person TEXT NOT NULL, -- JSON object; '' once nothing is left but to rewrite the file
    names TEXT NOT NULL, -- JSON list of nicks
    hosts TEXT NOT NULL, -- JSON list
    events BLOB NOT NULL, -- ids of the person's events, 64 bits each
    replies BLOB NOT NULL, -- and of the bot's lines that go with them
    quote_key BLOB NOT NULL,
    quotes BLOB NOT NULL, -- keyed hashes of the person's words
    steps TEXT NOT NULL, -- JSON list of what is left to be done
    removed_events INTEGER NOT NULL,
    removed_replies INTEGER NOT NULL,
    removed_turns INTEGER NOT NULL
) STRICT;

-- What a tendril's attention keeps over a restart. All times are microseconds since 1970-01-01 UTC.
CREATE TABLE signals (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    person TEXT NOT NULL COLLATE NOCASE, -- folded nick, or ''
    time INTEGER NOT NULL, -- from when on it counts
    value REAL NOT NULL,
    anchor INTEGER NOT NULL -- event that it is about, or 0
) STRICT;
CREATE TABLE put_off (
    kind TEXT NOT NULL,
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    value REAL NOT NULL,
    until INTEGER, -- NULL: until it is lifted
    PRIMARY KEY (kind, network, channel)
) STRICT, WITHOUT ROWID;
-- When the tendril last ran unasked.
CREATE TABLE contacts (
    network TEXT NOT NULL,
    channel TEXT NOT NULL COLLATE NOCASE,
    time INTEGER NOT NULL,
    PRIMARY KEY (network, channel)
) STRICT, WITHOUT ROWID;
CREATE TABLE energy (
    id INTEGER CHECK (id = 0),
    level REAL NOT NULL,
    time INTEGER NOT NULL,
    PRIMARY KEY (id)
) STRICT;

-- Who may use the agent server. Only a digest of each key is kept. `launch` is 1 for keys that
-- `terrarium up` makes for the processes it starts, anew each time: a server that has no other keys
-- stays open, and a key that somebody made may have the name of one of these.
CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    digest BLOB NOT NULL UNIQUE,
    hint TEXT NOT NULL, -- its first characters, to tell keys apart
    created INTEGER NOT NULL, -- microseconds since 1970-01-01 UTC
    revoked INTEGER,
    weight REAL NOT NULL,
    priority TEXT NOT NULL,
    requests_per_minute INTEGER,
    tokens_per_minute INTEGER,
    tokens_per_day INTEGER,
    parallel INTEGER,
    launch INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX keys_live ON keys (name, launch) WHERE revoked IS NULL;
-- What was used: one row for each tendril, model and day.
CREATE TABLE usage (
    day TEXT NOT NULL, -- UTC, YYYY-MM-DD
    tendril TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    cost REAL NOT NULL, -- in the currency of the price table
    PRIMARY KEY (day, tendril, model)
) STRICT, WITHOUT ROWID;
-- What persons and channels have used of the budgets of a UTC day, by pseudonyms whose key only
-- their tendril has. Rows of other days are removed.
CREATE TABLE spender_usage (
    day TEXT NOT NULL,
    tendril TEXT NOT NULL,
    model TEXT NOT NULL,
    channel TEXT NOT NULL,
    person TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    PRIMARY KEY (day, tendril, model, channel, person)
) STRICT, WITHOUT ROWID;
-- Tokens that a tendril has spent: on what ("answer", "summary", ...), by UTC day, room and
-- conversation. Names of conversations are names of people; after a while they become "".
CREATE TABLE spending (
    day TEXT NOT NULL,
    room TEXT NOT NULL,
    conversation TEXT NOT NULL,
    purpose TEXT NOT NULL,
    requests INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL, -- of the prompts' tokens
    completion INTEGER NOT NULL,
    PRIMARY KEY (day, room, conversation, purpose)
) STRICT, WITHOUT ROWID;
-- Browsers that are logged in to the web tendril. `id` is the SHA-256 of a cookie's random value,
-- `proof` says by which token it was opened, without telling that token.
CREATE TABLE web_logins (
    id TEXT PRIMARY KEY,
    proof TEXT NOT NULL,
    expires INTEGER NOT NULL
) STRICT;
