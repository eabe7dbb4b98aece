-- Records the arrival of (p_source, p_message_id) and says whether it was processed before.
-- Returns 1 when it is done, plus 2 when its stored hash differs from p_hash. The first hash stays.
CREATE OR REPLACE FUNCTION {inbox+_already_processed}(p_source text, p_message_id text, p_hash bytea DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql
{lookup_guards}
AS $$
DECLARE
    v_seen {inbox+_seen};
BEGIN
    INSERT INTO {inbox+_seen} AS s (source, message_id, hash)
    VALUES (p_source, p_message_id, p_hash)
    ON CONFLICT (message_id, source) DO UPDATE
    SET last_seen = statement_timestamp(), hash = coalesce(s.hash, excluded.hash)
    RETURNING * INTO v_seen;
    RETURN {inbox+_is_done}(v_seen.state, v_seen.work_id)::integer
        + CASE WHEN p_hash <> v_seen.hash THEN 2 ELSE 0 END;
END
$$;
