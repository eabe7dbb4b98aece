-- Joins refer to outbox messages by message id alone: there is no foreign key to the outbox and no
-- join column on it.
CREATE TABLE {join} (
    join_id uuid PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    last_updated_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    expected_steps integer NOT NULL CHECK (expected_steps > 0),
    completed_steps integer NOT NULL DEFAULT 0,
    failed_steps integer NOT NULL DEFAULT 0,
    status smallint NOT NULL DEFAULT 0,
    grouping_key text COLLATE "C" CHECK (char_length(grouping_key) BETWEEN 1 AND 255),
    metadata text,
    CHECK (completed_steps >= 0 AND failed_steps >= 0 AND completed_steps + failed_steps <= expected_steps)
) WITH (fillfactor = 50);

CREATE INDEX {name join+_grouping_key} ON {join} (grouping_key) WHERE grouping_key IS NOT NULL;

-- The key starts with message_id: that is how an ack finds its members.
CREATE TABLE {join_member} (
    message_id uuid NOT NULL,
    join_id uuid NOT NULL REFERENCES {join} (join_id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp(),
    status smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (message_id, join_id)
) WITH (fillfactor = 50);

CREATE INDEX {name join_member+_join} ON {join_member} (join_id);

-- Which wait messages the completing transaction has to wake.
CREATE TABLE {join+_wait} (
    join_id uuid NOT NULL REFERENCES {join} (join_id) ON DELETE CASCADE,
    message_id uuid NOT NULL,
    PRIMARY KEY (join_id, message_id)
);

CREATE INDEX {name join+_wait_message} ON {join+_wait} (message_id);
