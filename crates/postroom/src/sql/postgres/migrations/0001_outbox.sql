-- The outbox: a live table that holds only unfinished messages, an archive of done ones
-- partitioned by day, and a table of dead ones that stay until an operator acts.
--
-- locked_until and owner_token are in no index, and half of each page stays free, so that a claim
-- is a HOT update: it writes one heap tuple and touches no index.
CREATE TABLE {outbox} (
    id uuid PRIMARY KEY,
    message_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    next_attempt_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    due_time timestamptz,
    locked_until timestamptz,
    last_attempt_at timestamptz,
    owner_token uuid,
    attempt_count integer NOT NULL DEFAULT 0,
    deferral_count integer NOT NULL DEFAULT 0,
    delivery_count integer NOT NULL DEFAULT 0,
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

CREATE INDEX {name outbox+_ready} ON {outbox} (next_attempt_at);

-- A message id equals its work item id unless the caller chose one, so this index is almost
-- always empty; joins look a message up by `id = m`, then here.
CREATE INDEX {name outbox+_message} ON {outbox} (message_id) WHERE message_id <> id;

-- No primary key: it would cost a third of the drain rate. A BRIN index finds a row by id.
CREATE TABLE {outbox+_done} (
    id uuid NOT NULL,
    message_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    due_time timestamptz,
    last_attempt_at timestamptz,
    processed_at timestamptz NOT NULL,
    attempt_count integer NOT NULL,
    deferral_count integer NOT NULL,
    delivery_count integer NOT NULL,
    topic text COLLATE "C" NOT NULL,
    correlation_id text COLLATE "C",
    processed_by text,
    last_error text,
    payload text NOT NULL
) PARTITION BY RANGE (processed_at);

CREATE INDEX {name outbox+_done_ids} ON {outbox+_done} USING brin (id, message_id) WITH (pages_per_range = 32);

-- Catches acks on days that have no partition of their own, so that an ack never fails for want
-- of maintenance.
CREATE TABLE {outbox+_done_rest} PARTITION OF {outbox+_done} DEFAULT;

CREATE TABLE {outbox+_dead} (
    id uuid PRIMARY KEY,
    message_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    due_time timestamptz,
    last_attempt_at timestamptz,
    processed_at timestamptz NOT NULL,
    attempt_count integer NOT NULL,
    deferral_count integer NOT NULL,
    delivery_count integer NOT NULL,
    topic text COLLATE "C" NOT NULL,
    correlation_id text COLLATE "C",
    processed_by text,
    last_error text,
    payload text NOT NULL
);

CREATE INDEX {name outbox+_dead_message} ON {outbox+_dead} (message_id) WHERE message_id <> id;
CREATE INDEX {name outbox+_dead_time} ON {outbox+_dead} (processed_at);
