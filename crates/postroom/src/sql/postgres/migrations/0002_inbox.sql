-- The inbox: a narrow table that remembers every (source, message id), and the same three work
-- tables as the outbox. An ack never touches the narrow table: a message that was enqueued and is
-- neither live nor dead is done.
--
-- state: 0 seen, 1 marked processing without content, 2 enqueued, 3 marked done without content.
-- The key starts with message_id, so that a lookup by the bare id is served too.
CREATE TABLE {inbox+_seen} (
    message_id text COLLATE "C" NOT NULL CHECK (char_length(message_id) BETWEEN 1 AND 255),
    source text COLLATE "C" NOT NULL CHECK (char_length(source) BETWEEN 1 AND 255),
    first_seen timestamptz NOT NULL DEFAULT statement_timestamp(),
    last_seen timestamptz NOT NULL DEFAULT statement_timestamp(),
    work_id uuid,
    state smallint NOT NULL DEFAULT 0,
    hash bytea,
    PRIMARY KEY (message_id, source)
) WITH (fillfactor = 80);

-- backoff_until is what an abandon set; next_attempt_at folds it together with the due time, and
-- must be folded anew when a redelivery changes the due time.
CREATE TABLE {inbox} (
    id uuid PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    next_attempt_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    due_time timestamptz,
    backoff_until timestamptz,
    locked_until timestamptz,
    last_attempt_at timestamptz,
    owner_token uuid,
    attempt_count integer NOT NULL DEFAULT 0,
    deferral_count integer NOT NULL DEFAULT 0,
    delivery_count integer NOT NULL DEFAULT 0,
    source text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL CHECK (char_length(topic) BETWEEN 1 AND 255),
    correlation_id text COLLATE "C" CHECK (char_length(correlation_id) BETWEEN 1 AND 255),
    last_error text,
    payload text NOT NULL
) WITH (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX {name inbox+_ready} ON {inbox} (next_attempt_at);

CREATE TABLE {inbox+_done} (
    id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    due_time timestamptz,
    last_attempt_at timestamptz,
    processed_at timestamptz NOT NULL,
    attempt_count integer NOT NULL,
    deferral_count integer NOT NULL,
    delivery_count integer NOT NULL,
    source text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    topic text COLLATE "C",
    correlation_id text COLLATE "C",
    processed_by text,
    last_error text,
    payload text
) PARTITION BY RANGE (processed_at);

CREATE INDEX {name inbox+_done_ids} ON {inbox+_done} USING brin (id) WITH (pages_per_range = 32);

CREATE TABLE {inbox+_done_rest} PARTITION OF {inbox+_done} DEFAULT;

-- topic and payload are missing when a message was marked dead before it was ever enqueued.
CREATE TABLE {inbox+_dead} (
    id uuid PRIMARY KEY,
    created_at timestamptz NOT NULL,
    due_time timestamptz,
    last_attempt_at timestamptz,
    processed_at timestamptz NOT NULL,
    attempt_count integer NOT NULL,
    deferral_count integer NOT NULL,
    delivery_count integer NOT NULL,
    source text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    topic text COLLATE "C",
    correlation_id text COLLATE "C",
    processed_by text,
    last_error text,
    payload text
);

CREATE INDEX {name inbox+_dead_time} ON {inbox+_dead} (processed_at);
