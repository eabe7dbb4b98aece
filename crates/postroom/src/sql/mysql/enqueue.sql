-- One message, one row changed. ?7 is the due time in microseconds since 1970, or NULL.
-- A text is taken as the bytes that it is, which are UTF-8 whatever the caller's connection speaks.
-- The due time is folded into next_attempt_at, so that one index serves the claim.
INSERT INTO {outbox} (id, message_id, topic, payload, headers, correlation_id, due_time, created_at, next_attempt_at)
VALUES (?1, ?2, ?3, CONVERT(CAST(?4 AS BINARY) USING utf8mb4), CONVERT(CAST(?5 AS BINARY) USING utf8mb4), ?6, ?7, {now}, GREATEST(COALESCE(?7, 0), {now}))
