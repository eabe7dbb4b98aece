-- Enqueues one message from SQL, inside whatever transaction is open; returns its work item id.
CREATE OR REPLACE FUNCTION {outbox+_enqueue}(p_topic text, p_payload text, p_correlation_id text DEFAULT NULL, p_due_time timestamptz DEFAULT NULL, p_headers text DEFAULT NULL)
RETURNS uuid
LANGUAGE sql
AS $$
    INSERT INTO {outbox} (id, message_id, topic, payload, correlation_id, headers, due_time, next_attempt_at)
    SELECT n.id, n.id, p_topic, p_payload, nullif(p_correlation_id, ''), p_headers, p_due_time,
           greatest(p_due_time, statement_timestamp())
    FROM (SELECT {outbox+_new_id}() AS id) AS n
    RETURNING id
$$;
