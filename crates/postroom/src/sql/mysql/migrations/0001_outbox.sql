-- The outbox: a live table that holds only unfinished messages, an archive of done ones, and a
-- table of dead ones that stay until an operator acts. Times are microseconds since 1970, UTC.
--
-- Names are VARBINARY: every collation that both MySQL and MariaDB know pads with spaces, so that
-- `a` and `a ` would be one name.
--
-- locked_until and owner_token are in no index: a claim writes the row and nothing else. The ready
-- index ends with the primary key, which makes it the exact order of a claim: SKIP LOCKED then locks
-- what is taken and no more.
CREATE TABLE {outbox} (
    id BINARY(16) NOT NULL PRIMARY KEY,
    message_id BINARY(16) NOT NULL,
    created_at BIGINT NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    due_time BIGINT,
    locked_until BIGINT,
    last_attempt_at BIGINT,
    owner_token BINARY(16),
    attempt_count INT NOT NULL DEFAULT 0,
    deferral_count INT NOT NULL DEFAULT 0,
    delivery_count INT NOT NULL DEFAULT 0,
    topic VARBINARY(1020) NOT NULL CHECK (CHAR_LENGTH(CONVERT(topic USING utf8mb4)) BETWEEN 1 AND 255),
    correlation_id VARBINARY(1020) CHECK (CHAR_LENGTH(CONVERT(correlation_id USING utf8mb4)) BETWEEN 1 AND 255),
    last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    INDEX {name outbox+_ready} (next_attempt_at),
    INDEX {name outbox+_message} (message_id)
) ENGINE = InnoDB;

-- seq grows with every done message: it counts them, and it keeps the archive in the order of time.
CREATE TABLE {outbox+_done} (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id BINARY(16) NOT NULL,
    message_id BINARY(16) NOT NULL,
    created_at BIGINT NOT NULL,
    due_time BIGINT,
    last_attempt_at BIGINT,
    processed_at BIGINT NOT NULL,
    attempt_count INT NOT NULL,
    deferral_count INT NOT NULL,
    delivery_count INT NOT NULL,
    topic VARBINARY(1020) NOT NULL,
    correlation_id VARBINARY(1020),
    processed_by VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    INDEX {name outbox+_done_id} (id),
    INDEX {name outbox+_done_message} (message_id),
    INDEX {name outbox+_done_time} (processed_at)
) ENGINE = InnoDB;

CREATE TABLE {outbox+_dead} (
    id BINARY(16) NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL AUTO_INCREMENT,
    message_id BINARY(16) NOT NULL,
    created_at BIGINT NOT NULL,
    due_time BIGINT,
    last_attempt_at BIGINT,
    processed_at BIGINT NOT NULL,
    attempt_count INT NOT NULL,
    deferral_count INT NOT NULL,
    delivery_count INT NOT NULL,
    topic VARBINARY(1020) NOT NULL,
    correlation_id VARBINARY(1020),
    processed_by VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    UNIQUE INDEX {name outbox+_dead_seq} (seq),
    INDEX {name outbox+_dead_message} (message_id),
    INDEX {name outbox+_dead_time} (processed_at),
    INDEX {name outbox+_dead_topic} (topic, id)
) ENGINE = InnoDB;
