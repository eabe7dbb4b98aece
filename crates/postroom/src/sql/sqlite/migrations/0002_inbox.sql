-- The inbox: a narrow table that remembers every (source, message id), and the same three work
-- tables as the outbox. A message that was enqueued and is neither live nor dead is done.
--
-- state: 0 seen, 1 marked processing without content, 2 enqueued, 3 marked done without content.
-- The key starts with message_id, so that a lookup by the bare id is served too.
CREATE TABLE {inbox+_seen} (
    message_id TEXT NOT NULL CHECK (length(message_id) BETWEEN 1 AND 255),
    source TEXT NOT NULL CHECK (length(source) BETWEEN 1 AND 255),
    first_seen INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    work_id BLOB,
    state INTEGER NOT NULL DEFAULT 0,
    hash BLOB,
    PRIMARY KEY (message_id, source)
) STRICT, WITHOUT ROWID;

-- backoff_until is what an abandon set; next_attempt_at folds it together with the due time, and
-- must be folded anew when a redelivery changes the due time.
CREATE TABLE {inbox} (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    due_time INTEGER,
    backoff_until INTEGER,
    locked_from INTEGER,
    locked_until INTEGER,
    last_attempt_at INTEGER,
    owner_token BLOB,
    attempt_count INTEGER NOT NULL DEFAULT 0,
    deferral_count INTEGER NOT NULL DEFAULT 0,
    delivery_count INTEGER NOT NULL DEFAULT 0,
    source TEXT NOT NULL,
    message_id TEXT NOT NULL,
    topic TEXT NOT NULL CHECK (length(topic) BETWEEN 1 AND 255),
    correlation_id TEXT CHECK (length(correlation_id) BETWEEN 1 AND 255),
    last_error TEXT,
    payload TEXT NOT NULL
) STRICT;

CREATE INDEX {name inbox+_ready} ON {inbox} (next_attempt_at);

CREATE TABLE {inbox+_done} (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    due_time INTEGER,
    last_attempt_at INTEGER,
    processed_at INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL,
    deferral_count INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    source TEXT NOT NULL,
    message_id TEXT NOT NULL,
    topic TEXT,
    correlation_id TEXT,
    processed_by TEXT,
    last_error TEXT,
    payload TEXT
) STRICT;

CREATE INDEX {name inbox+_done_id} ON {inbox+_done} (id);

CREATE INDEX {name inbox+_done_time} ON {inbox+_done} (processed_at);

-- topic and payload are missing when a message was marked dead before it was ever enqueued.
CREATE TABLE {inbox+_dead} (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    due_time INTEGER,
    last_attempt_at INTEGER,
    processed_at INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL,
    deferral_count INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    source TEXT NOT NULL,
    message_id TEXT NOT NULL,
    topic TEXT,
    correlation_id TEXT,
    processed_by TEXT,
    last_error TEXT,
    payload TEXT
) STRICT;

CREATE INDEX {name inbox+_dead_time} ON {inbox+_dead} (processed_at);
