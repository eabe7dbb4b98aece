-- Whether a remembered message is done: it was marked so, or it was enqueued and is neither live
-- nor dead any more. Call it with the seen row locked.
CREATE OR REPLACE FUNCTION {inbox+_is_done}(p_state smallint, p_work_id uuid)
RETURNS boolean
LANGUAGE plpgsql
{lookup_guards}
AS $$
BEGIN
    RETURN p_state = 3 OR (p_state = 2
        AND NOT EXISTS (SELECT FROM {inbox} AS q WHERE q.id = p_work_id)
        AND NOT EXISTS (SELECT FROM {inbox+_dead} AS d WHERE d.id = p_work_id));
END
$$;
