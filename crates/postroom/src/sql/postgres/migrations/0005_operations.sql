-- What people who run a store need: keys that make an enqueue happen once, a trail of what operators
-- did, and an index by which dead messages of a topic are found.
--
-- A key stands for the message that was enqueued under it; hash is a SHA-256 of that message.
CREATE TABLE {outbox+_key} (
    key text COLLATE "C" PRIMARY KEY CHECK (char_length(key) BETWEEN 1 AND 255),
    hash bytea NOT NULL,
    id uuid NOT NULL,
    message_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp()
);

CREATE INDEX {name outbox+_key_time} ON {outbox+_key} (created_at);

-- Who did what, when, to what. Never a payload.
CREATE TABLE {outbox+_audit} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recorded_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    actor text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    detail text
);

CREATE INDEX {name outbox+_audit_subject} ON {outbox+_audit} (subject, id);

CREATE INDEX {name outbox+_audit_time} ON {outbox+_audit} (recorded_at);

CREATE INDEX {name outbox+_dead_topic} ON {outbox+_dead} (topic, id);

CREATE INDEX {name inbox+_dead_topic} ON {inbox+_dead} (topic, id);
