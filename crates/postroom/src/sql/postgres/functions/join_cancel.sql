-- Cancels a pending join and wakes its wait messages. Returns 1 cancelled, 0 it had already
-- finished, -1 unknown join.
CREATE OR REPLACE FUNCTION {join+_cancel}(p_join uuid)
RETURNS integer
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE {join} SET status = 3, last_updated_at = clock_timestamp() WHERE join_id = p_join AND status = 0;
    IF FOUND THEN
        PERFORM {join+_wake}(ARRAY[p_join]);
        RETURN 1;
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM {join} WHERE join_id = p_join) THEN 0 ELSE -1 END;
END
$$;
