-- Acks one message ($1 owner, $2 its id in an array, $3 worker, $4 keep) and enqueues others in the
-- same statement ($5 to $13, as enqueue_joined), but only if the ack changed something: a lost lease
-- leaves nothing behind. Returns as ack does.
WITH acked AS MATERIALIZED (
    SELECT * FROM {queue+_ack}($1::uuid, $2::uuid[], $3::text, $4::bigint <> 0)),
enqueued AS (
    INSERT INTO {outbox} (id, message_id, topic, payload, headers, correlation_id, due_time, next_attempt_at)
    SELECT u.id, u.message_id, u.topic, u.payload, u.headers, u.correlation_id,
           'epoch'::timestamptz + u.due * interval '1 microsecond',
           greatest('epoch'::timestamptz + u.due * interval '1 microsecond', statement_timestamp())
    FROM unnest($5::uuid[], $6::uuid[], $7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[])
        AS u (id, message_id, topic, payload, headers, correlation_id, due)
    WHERE EXISTS (SELECT FROM acked WHERE acked.id IS NOT NULL)),
members AS (
    INSERT INTO {join_member} (message_id, join_id)
    SELECT DISTINCT m.message_id, m.join_id
    FROM unnest($12::uuid[], $13::uuid[]) AS m (message_id, join_id)
    WHERE EXISTS (SELECT FROM acked WHERE acked.id IS NOT NULL)
    ON CONFLICT DO NOTHING)
SELECT id, join_id, join_status, completed_steps, failed_steps, expected_steps FROM acked
