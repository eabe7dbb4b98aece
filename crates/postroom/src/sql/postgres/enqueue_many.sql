-- Any number of messages in one statement: the arrays run in parallel, one element per message.
INSERT INTO {outbox} (id, message_id, topic, payload, headers, correlation_id, due_time, next_attempt_at)
SELECT u.id, u.message_id, u.topic, u.payload, u.headers, u.correlation_id,
       'epoch'::timestamptz + u.due * interval '1 microsecond',
       greatest('epoch'::timestamptz + u.due * interval '1 microsecond', statement_timestamp())
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
    AS u (id, message_id, topic, payload, headers, correlation_id, due)
