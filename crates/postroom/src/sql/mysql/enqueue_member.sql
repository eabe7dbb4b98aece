-- Makes message ?1 a step of join ?2. A row changes also when it is one already, whatever the client
-- wants counted. An unknown join is a foreign key violation.
INSERT INTO {join_member} (message_id, join_id, created_at)
VALUES (?1, ?2, {now})
ON DUPLICATE KEY UPDATE created_at = created_at + 1
