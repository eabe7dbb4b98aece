-- Takes an inbound message in, once per (p_source, p_message_id). Returns an outcome that callers
-- in a transaction read as a row count: 0 already done, 2 new, 4 content replaced, 6 content
-- replaced but the message stays dead; plus 1 when the hash differs from the stored one.
-- A leased message keeps its lease, attempts and backoff.
-- Locks: the seen row first, then the live or dead row. Live is looked at before dead, because that
-- is the way a message moves without the seen row being locked.
CREATE OR REPLACE FUNCTION {inbox+_enqueue}(p_id uuid, p_source text, p_message_id text, p_topic text, p_payload text, p_hash bytea DEFAULT NULL, p_due_time timestamptz DEFAULT NULL, p_correlation_id text DEFAULT NULL, p_headers text DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
{lookup_guards}
AS $$
DECLARE
    v_seen {inbox+_seen};
    v_differs integer;
    v_correlation_id text := nullif(p_correlation_id, '');
BEGIN
    INSERT INTO {inbox+_seen} AS s (source, message_id, hash, state, work_id)
    VALUES (p_source, p_message_id, p_hash, 2, p_id)
    ON CONFLICT (message_id, source) DO NOTHING;
    IF FOUND THEN
        INSERT INTO {inbox} (id, source, message_id, topic, payload, correlation_id, headers, due_time, next_attempt_at)
        VALUES (p_id, p_source, p_message_id, p_topic, p_payload, v_correlation_id, p_headers, p_due_time,
                greatest(p_due_time, statement_timestamp()));
        RETURN 2;
    END IF;

    SELECT * INTO v_seen FROM {inbox+_seen} AS s
    WHERE s.message_id = p_message_id AND s.source = p_source
    FOR UPDATE;
    IF NOT FOUND THEN
        -- Purged or cleaned up between the two statements: it is new again.
        RETURN {inbox+_enqueue}(p_id, p_source, p_message_id, p_topic, p_payload, p_hash, p_due_time, p_correlation_id, p_headers);
    END IF;
    v_differs := CASE WHEN p_hash <> v_seen.hash THEN 1 ELSE 0 END;

    IF v_seen.state IN (0, 1) THEN
        INSERT INTO {inbox} (id, source, message_id, topic, payload, correlation_id, headers, due_time, next_attempt_at, created_at)
        VALUES (p_id, p_source, p_message_id, p_topic, p_payload, v_correlation_id, p_headers, p_due_time,
                greatest(p_due_time, statement_timestamp()), v_seen.first_seen);
        UPDATE {inbox+_seen} AS s
        SET last_seen = statement_timestamp(), hash = p_hash, state = 2, work_id = p_id
        WHERE s.message_id = p_message_id AND s.source = p_source;
        RETURN 2 + v_differs;
    END IF;

    IF v_seen.state = 2 THEN
        UPDATE {inbox} AS q
        SET topic = p_topic, payload = p_payload, correlation_id = v_correlation_id, headers = p_headers,
            due_time = p_due_time,
            next_attempt_at = greatest(p_due_time, q.backoff_until, q.created_at)
        WHERE q.id = v_seen.work_id;
        IF FOUND THEN
            UPDATE {inbox+_seen} AS s SET last_seen = statement_timestamp(), hash = p_hash
            WHERE s.message_id = p_message_id AND s.source = p_source;
            RETURN 4 + v_differs;
        END IF;
        UPDATE {inbox+_dead} AS d
        SET topic = p_topic, payload = p_payload, correlation_id = v_correlation_id, headers = p_headers,
            due_time = p_due_time
        WHERE d.id = v_seen.work_id;
        IF FOUND THEN
            UPDATE {inbox+_seen} AS s SET last_seen = statement_timestamp(), hash = p_hash
            WHERE s.message_id = p_message_id AND s.source = p_source;
            RETURN 6 + v_differs;
        END IF;
    END IF;

    UPDATE {inbox+_seen} AS s SET last_seen = statement_timestamp()
    WHERE s.message_id = p_message_id AND s.source = p_source;
    RETURN v_differs;
END
$$;
