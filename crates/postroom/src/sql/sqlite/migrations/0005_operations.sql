-- What people who run a store need: keys that make an enqueue happen once, a trail of what operators
-- did, and an index by which dead messages of a topic are counted.
--
-- A key stands for the message that was enqueued under it; hash is a SHA-256 of that message.
CREATE TABLE {outbox+_key} (
    key TEXT PRIMARY KEY CHECK (length(key) BETWEEN 1 AND 255),
    hash BLOB NOT NULL,
    id BLOB NOT NULL,
    message_id BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX {name outbox+_key_time} ON {outbox+_key} (created_at);

-- Who did what, when, to what. Never a payload.
CREATE TABLE {outbox+_audit} (
    id INTEGER PRIMARY KEY,
    recorded_at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    count INTEGER NOT NULL,
    detail TEXT
) STRICT;

CREATE INDEX {name outbox+_audit_subject} ON {outbox+_audit} (subject, id);

CREATE INDEX {name outbox+_audit_time} ON {outbox+_audit} (recorded_at);

CREATE INDEX {name outbox+_dead_topic} ON {outbox+_dead} (topic, id);

CREATE INDEX {name inbox+_dead_topic} ON {inbox+_dead} (topic, id);
