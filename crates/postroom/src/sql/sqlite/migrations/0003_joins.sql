-- Joins refer to outbox messages by message id alone: there is no foreign key to the outbox and no
-- join column on it.
CREATE TABLE {join} (
    join_id BLOB PRIMARY KEY,
    created_at INTEGER NOT NULL,
    last_updated_at INTEGER NOT NULL,
    expected_steps INTEGER NOT NULL CHECK (expected_steps > 0),
    completed_steps INTEGER NOT NULL DEFAULT 0,
    failed_steps INTEGER NOT NULL DEFAULT 0,
    status INTEGER NOT NULL DEFAULT 0,
    grouping_key TEXT CHECK (length(grouping_key) BETWEEN 1 AND 255),
    metadata TEXT,
    CHECK (completed_steps >= 0 AND failed_steps >= 0 AND completed_steps + failed_steps <= expected_steps)
) STRICT;

CREATE INDEX {name join+_grouping_key} ON {join} (grouping_key) WHERE grouping_key IS NOT NULL;

-- The key starts with message_id: that is how an ack finds its members.
CREATE TABLE {join_member} (
    message_id BLOB NOT NULL,
    join_id BLOB NOT NULL REFERENCES {join} (join_id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    status INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (message_id, join_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX {name join_member+_join} ON {join_member} (join_id);

-- Which wait messages the completing transaction has to wake.
CREATE TABLE {join+_wait} (
    join_id BLOB NOT NULL REFERENCES {join} (join_id) ON DELETE CASCADE,
    message_id BLOB NOT NULL,
    PRIMARY KEY (join_id, message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX {name join+_wait_message} ON {join+_wait} (message_id);
