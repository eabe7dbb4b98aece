-- The inbox: a narrow table that remembers every (source, message id), and the same three work
-- tables as the outbox. A message that was enqueued and is neither live nor dead is done.
--
-- state: 0 seen, 1 marked processing without content, 2 enqueued, 3 marked done without content.
-- The key starts with message_id, so that a lookup by the bare id is served too.
CREATE TABLE {inbox+_seen} (
    message_id VARBINARY(1020) NOT NULL CHECK (CHAR_LENGTH(CONVERT(message_id USING utf8mb4)) BETWEEN 1 AND 255),
    source VARBINARY(1020) NOT NULL CHECK (CHAR_LENGTH(CONVERT(source USING utf8mb4)) BETWEEN 1 AND 255),
    first_seen BIGINT NOT NULL,
    last_seen BIGINT NOT NULL,
    work_id BINARY(16),
    state SMALLINT NOT NULL DEFAULT 0,
    hash BLOB,
    PRIMARY KEY (message_id, source)
) ENGINE = InnoDB;

-- backoff_until is what an abandon set; next_attempt_at folds it together with the due time, and
-- must be folded anew when a redelivery changes the due time. revision counts redeliveries that
-- replaced the content: to some clients the server reports an update that changes nothing as none.
CREATE TABLE {inbox} (
    id BINARY(16) NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    due_time BIGINT,
    backoff_until BIGINT,
    locked_until BIGINT,
    last_attempt_at BIGINT,
    owner_token BINARY(16),
    attempt_count INT NOT NULL DEFAULT 0,
    deferral_count INT NOT NULL DEFAULT 0,
    delivery_count INT NOT NULL DEFAULT 0,
    revision INT NOT NULL DEFAULT 0,
    source VARBINARY(1020) NOT NULL,
    message_id VARBINARY(1020) NOT NULL,
    topic VARBINARY(1020) NOT NULL CHECK (CHAR_LENGTH(CONVERT(topic USING utf8mb4)) BETWEEN 1 AND 255),
    correlation_id VARBINARY(1020) CHECK (CHAR_LENGTH(CONVERT(correlation_id USING utf8mb4)) BETWEEN 1 AND 255),
    last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    INDEX {name inbox+_ready} (next_attempt_at)
) ENGINE = InnoDB;

CREATE TABLE {inbox+_done} (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id BINARY(16) NOT NULL,
    created_at BIGINT NOT NULL,
    due_time BIGINT,
    last_attempt_at BIGINT,
    processed_at BIGINT NOT NULL,
    attempt_count INT NOT NULL,
    deferral_count INT NOT NULL,
    delivery_count INT NOT NULL,
    source VARBINARY(1020) NOT NULL,
    message_id VARBINARY(1020) NOT NULL,
    topic VARBINARY(1020),
    correlation_id VARBINARY(1020),
    processed_by VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    INDEX {name inbox+_done_id} (id),
    INDEX {name inbox+_done_time} (processed_at)
) ENGINE = InnoDB;

-- topic and payload are missing when a message was marked dead before it was ever enqueued.
CREATE TABLE {inbox+_dead} (
    id BINARY(16) NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL AUTO_INCREMENT,
    created_at BIGINT NOT NULL,
    due_time BIGINT,
    last_attempt_at BIGINT,
    processed_at BIGINT NOT NULL,
    attempt_count INT NOT NULL,
    deferral_count INT NOT NULL,
    delivery_count INT NOT NULL,
    revision INT NOT NULL DEFAULT 0,
    source VARBINARY(1020) NOT NULL,
    message_id VARBINARY(1020) NOT NULL,
    topic VARBINARY(1020),
    correlation_id VARBINARY(1020),
    processed_by VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    UNIQUE INDEX {name inbox+_dead_seq} (seq),
    INDEX {name inbox+_dead_time} (processed_at),
    INDEX {name inbox+_dead_topic} (topic, id)
) ENGINE = InnoDB;
