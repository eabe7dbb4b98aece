-- The outbox: a live table that holds only unfinished messages, an archive of done ones, and a
-- table of dead ones that stay until an operator acts. Times are microseconds since 1970.
--
-- A claim writes only columns that are in no index. locked_from says when a lease began: one that
-- seems to begin in the future was taken before the clock was set back, and counts as expired. So a
-- clock step can cause an early redelivery but never a lease that does not end. Due times and
-- backoffs are times of the host's clock: when it is set back, they are waited for once more.
CREATE TABLE {outbox} (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    message_id BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    due_time INTEGER,
    locked_from INTEGER,
    locked_until INTEGER,
    last_attempt_at INTEGER,
    owner_token BLOB,
    attempt_count INTEGER NOT NULL DEFAULT 0,
    deferral_count INTEGER NOT NULL DEFAULT 0,
    delivery_count INTEGER NOT NULL DEFAULT 0,
    topic TEXT NOT NULL CHECK (length(topic) BETWEEN 1 AND 255),
    correlation_id TEXT CHECK (length(correlation_id) BETWEEN 1 AND 255),
    last_error TEXT,
    payload TEXT NOT NULL
) STRICT;

CREATE INDEX {name outbox+_ready} ON {outbox} (next_attempt_at);

CREATE INDEX {name outbox+_message} ON {outbox} (message_id) WHERE message_id <> id;

CREATE TABLE {outbox+_done} (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    message_id BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    due_time INTEGER,
    last_attempt_at INTEGER,
    processed_at INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL,
    deferral_count INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    topic TEXT NOT NULL,
    correlation_id TEXT,
    processed_by TEXT,
    last_error TEXT,
    payload TEXT NOT NULL
) STRICT;

-- Ids and times both grow, so these indexes are appended to and stay cheap.
CREATE INDEX {name outbox+_done_id} ON {outbox+_done} (id);

CREATE INDEX {name outbox+_done_message} ON {outbox+_done} (message_id) WHERE message_id <> id;

CREATE INDEX {name outbox+_done_time} ON {outbox+_done} (processed_at);

CREATE TABLE {outbox+_dead} (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    message_id BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    due_time INTEGER,
    last_attempt_at INTEGER,
    processed_at INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL,
    deferral_count INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    topic TEXT NOT NULL,
    correlation_id TEXT,
    processed_by TEXT,
    last_error TEXT,
    payload TEXT NOT NULL
) STRICT;

CREATE INDEX {name outbox+_dead_message} ON {outbox+_dead} (message_id) WHERE message_id <> id;

CREATE INDEX {name outbox+_dead_time} ON {outbox+_dead} (processed_at);
