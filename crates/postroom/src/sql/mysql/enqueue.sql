-- One message, one row changed. ?7 is the due time in microseconds since 1970, or NULL.
-- The due time is folded into next_attempt_at, so that one index serves the claim.
INSERT INTO {outbox} (id, message_id, topic, payload, headers, correlation_id, due_time, created_at, next_attempt_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, {now}, GREATEST(COALESCE(?7, 0), {now}))
