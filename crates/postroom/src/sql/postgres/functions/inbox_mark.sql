-- Moves a remembered message by hand: p_state 1 processing, 3 done, 4 dead. Leases do not matter
-- here. Returns 0 unknown key, 1 moved, 2 left as it was. Done never changes; processing can only
-- follow seen.
CREATE OR REPLACE FUNCTION {inbox+_mark}(p_source text, p_message_id text, p_state smallint, p_worker text)
RETURNS integer
LANGUAGE plpgsql
{lookup_guards}
AS $$
#variable_conflict use_column
DECLARE
    v_seen {inbox+_seen};
BEGIN
    SELECT * INTO v_seen FROM {inbox+_seen} AS s
    WHERE s.message_id = p_message_id AND s.source = p_source
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;

    IF v_seen.state IN (0, 1) AND p_state = 4 THEN
        INSERT INTO {inbox+_dead} (id, source, message_id, created_at, processed_at, processed_by, attempt_count, deferral_count, delivery_count)
        VALUES ({outbox+_new_id}(), p_source, p_message_id, v_seen.first_seen, statement_timestamp(), p_worker, 0, 0, 0)
        RETURNING id INTO v_seen.work_id;
        UPDATE {inbox+_seen} AS s SET state = 2, work_id = v_seen.work_id
        WHERE s.message_id = p_message_id AND s.source = p_source;
        RETURN 1;
    ELSIF v_seen.state IN (0, 1) AND v_seen.state <> p_state THEN
        UPDATE {inbox+_seen} AS s SET state = p_state
        WHERE s.message_id = p_message_id AND s.source = p_source;
        RETURN 1;
    ELSIF v_seen.state <> 2 OR p_state = 1 THEN
        RETURN 2;
    END IF;

    IF p_state = 4 THEN
        WITH gone AS (DELETE FROM {inbox} WHERE id = v_seen.work_id RETURNING *)
        INSERT INTO {inbox+_dead} ({inbox_columns}, processed_at, processed_by)
        SELECT {inbox_columns}, statement_timestamp(), p_worker FROM gone;
        RETURN CASE WHEN FOUND THEN 1 ELSE 2 END;
    END IF;

    WITH gone AS (DELETE FROM {inbox} WHERE id = v_seen.work_id RETURNING *)
    INSERT INTO {inbox+_done} ({inbox_columns}, processed_at, processed_by)
    SELECT {inbox_columns}, statement_timestamp(), p_worker FROM gone;
    IF FOUND THEN
        RETURN 1;
    END IF;
    WITH gone AS (DELETE FROM {inbox+_dead} WHERE id = v_seen.work_id RETURNING *)
    INSERT INTO {inbox+_done} ({inbox_columns}, processed_at, processed_by)
    SELECT {inbox_columns}, statement_timestamp(), p_worker FROM gone;
    RETURN CASE WHEN FOUND THEN 1 ELSE 2 END;
END
$$;
