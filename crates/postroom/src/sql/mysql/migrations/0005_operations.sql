-- What people who run a store need: keys that make an enqueue happen once, and a trail of what
-- operators did.
--
-- A key stands for the message that was enqueued under it; hash is a SHA-256 of that message.
CREATE TABLE {outbox+_key} (
    `key` VARBINARY(1020) NOT NULL PRIMARY KEY CHECK (CHAR_LENGTH(CONVERT(`key` USING utf8mb4)) BETWEEN 1 AND 255),
    hash VARBINARY(64) NOT NULL,
    id BINARY(16) NOT NULL,
    message_id BINARY(16) NOT NULL,
    created_at BIGINT NOT NULL,
    INDEX {name outbox+_key_time} (created_at)
) ENGINE = InnoDB;

-- Who did what, when, to what. Never a payload.
CREATE TABLE {outbox+_audit} (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    recorded_at BIGINT NOT NULL,
    actor VARBINARY(1020) NOT NULL,
    action VARBINARY(1020) NOT NULL,
    subject VARBINARY(2400) NOT NULL,
    count BIGINT NOT NULL,
    detail LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    INDEX {name outbox+_audit_subject} (subject, id),
    INDEX {name outbox+_audit_time} (recorded_at)
) ENGINE = InnoDB;
