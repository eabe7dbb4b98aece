-- A wait message and its entry in the wake-up table. An unknown join is a foreign key violation.
-- A text is taken as the bytes that it is, as in enqueue.sql.
INSERT INTO {join+_wait} (join_id, message_id)
VALUES (?5, ?1);

INSERT INTO {outbox} (id, message_id, topic, payload, headers, created_at, next_attempt_at)
VALUES (?1, ?1, ?2, CONVERT(CAST(?3 AS BINARY) USING utf8mb4), CONVERT(CAST(?4 AS BINARY) USING utf8mb4), {now}, {now})
