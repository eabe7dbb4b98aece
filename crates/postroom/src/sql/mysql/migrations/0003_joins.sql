-- Joins refer to outbox messages by message id alone: there is no foreign key to the outbox and no
-- join column on it.
CREATE TABLE {join} (
    join_id BINARY(16) NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL,
    last_updated_at BIGINT NOT NULL,
    expected_steps INT NOT NULL CHECK (expected_steps > 0),
    completed_steps INT NOT NULL DEFAULT 0,
    failed_steps INT NOT NULL DEFAULT 0,
    status SMALLINT NOT NULL DEFAULT 0,
    grouping_key VARBINARY(1020) CHECK (CHAR_LENGTH(CONVERT(grouping_key USING utf8mb4)) BETWEEN 1 AND 255),
    metadata LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    CHECK (completed_steps >= 0 AND failed_steps >= 0 AND completed_steps + failed_steps <= expected_steps),
    INDEX {name join+_grouping_key} (grouping_key)
) ENGINE = InnoDB;

-- What members and waits refer to. A foreign key locks the row that it points to until its transaction
-- ends: were that the join itself, whoever counts a step would wait for every caller who has enqueued
-- another one and not committed yet.
CREATE TABLE {join+_key} (
    join_id BINARY(16) NOT NULL PRIMARY KEY,
    FOREIGN KEY (join_id) REFERENCES {join} (join_id) ON DELETE CASCADE
) ENGINE = InnoDB;

-- The key starts with message_id: that is how an ack finds its members.
CREATE TABLE {join_member} (
    message_id BINARY(16) NOT NULL,
    join_id BINARY(16) NOT NULL,
    created_at BIGINT NOT NULL,
    status SMALLINT NOT NULL DEFAULT 0,
    PRIMARY KEY (message_id, join_id),
    INDEX {name join_member+_join} (join_id),
    -- MySQL would make a longer name, and refuse it where the table's is a long one.
    CONSTRAINT {name join_member+_key} FOREIGN KEY (join_id) REFERENCES {join+_key} (join_id) ON DELETE CASCADE
) ENGINE = InnoDB;

-- Which wait messages the completing transaction has to wake.
CREATE TABLE {join+_wait} (
    join_id BINARY(16) NOT NULL,
    message_id BINARY(16) NOT NULL,
    PRIMARY KEY (join_id, message_id),
    INDEX {name join+_wait_message} (message_id),
    FOREIGN KEY (join_id) REFERENCES {join+_key} (join_id) ON DELETE CASCADE
) ENGINE = InnoDB;
