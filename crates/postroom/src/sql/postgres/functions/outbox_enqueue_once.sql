-- Enqueues a message once per p_key, inside whatever transaction is open. p_hash is a hash of what the
-- caller means by the same message. Returns the work item and the message that stand under the key, and
-- 0 when they are new, 1 when they were there, 2 when they were there with another hash.
-- Who comes second waits for the first to commit, and then finds its message.
CREATE OR REPLACE FUNCTION {outbox+_enqueue_once}(p_key text, p_hash bytea, p_id uuid, p_message_id uuid, p_topic text, p_payload text, p_headers text DEFAULT NULL, p_correlation_id text DEFAULT NULL, p_due_time timestamptz DEFAULT NULL, p_joins uuid[] DEFAULT NULL)
RETURNS TABLE (work_item uuid, message uuid, outcome integer)
LANGUAGE plpgsql
{lookup_guards}
AS $$
BEGIN
    LOOP
        INSERT INTO {outbox+_key} AS k (key, hash, id, message_id)
        VALUES (p_key, p_hash, p_id, p_message_id)
        ON CONFLICT (key) DO NOTHING;
        IF FOUND THEN
            INSERT INTO {outbox} (id, message_id, topic, payload, headers, correlation_id, due_time, next_attempt_at)
            VALUES (p_id, p_message_id, p_topic, p_payload, p_headers, nullif(p_correlation_id, ''), p_due_time,
                    greatest(p_due_time, statement_timestamp()));
            INSERT INTO {join_member} (message_id, join_id)
            SELECT DISTINCT p_message_id, j.join_id
            FROM unnest(p_joins) AS j (join_id)
            ON CONFLICT DO NOTHING;
            RETURN QUERY SELECT p_id, p_message_id, 0;
            RETURN;
        END IF;
        RETURN QUERY
        SELECT k.id, k.message_id, CASE WHEN k.hash = p_hash THEN 1 ELSE 2 END
        FROM {outbox+_key} AS k
        WHERE k.key = p_key;
        IF FOUND THEN
            RETURN;
        END IF;
        -- The key was forgotten between the two statements: it is new again.
    END LOOP;
END
$$;
