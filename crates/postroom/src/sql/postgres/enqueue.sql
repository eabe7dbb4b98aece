-- One message, one row changed. $7 is the due time in microseconds since 1970, or NULL.
-- The due time is folded into next_attempt_at, so that one index serves the claim.
INSERT INTO {outbox} (id, message_id, topic, payload, headers, correlation_id, due_time, next_attempt_at)
VALUES (
    $1::uuid, $2::uuid, $3::text, $4::text, $5::text, $6::text,
    'epoch'::timestamptz + $7::bigint * interval '1 microsecond',
    greatest('epoch'::timestamptz + $7::bigint * interval '1 microsecond', statement_timestamp()))
