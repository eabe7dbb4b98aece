-- Messages and their join memberships in one statement: member i is message $8[i] in join $9[i].
-- An unknown join is a foreign key violation and undoes the whole statement.
-- Rows changed: the memberships.
WITH enqueued AS (
    INSERT INTO {outbox} (id, message_id, topic, payload, headers, correlation_id, due_time, next_attempt_at)
    SELECT u.id, u.message_id, u.topic, u.payload, u.headers, u.correlation_id,
           'epoch'::timestamptz + u.due * interval '1 microsecond',
           greatest('epoch'::timestamptz + u.due * interval '1 microsecond', statement_timestamp())
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
        AS u (id, message_id, topic, payload, headers, correlation_id, due))
INSERT INTO {join_member} (message_id, join_id)
SELECT DISTINCT m.message_id, m.join_id
FROM unnest($8::uuid[], $9::uuid[]) AS m (message_id, join_id)
ON CONFLICT DO NOTHING
