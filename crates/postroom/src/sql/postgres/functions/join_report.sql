-- Reports one step by hand: p_status 1 completed, 2 failed. The first row says what happened:
-- outcome 0 counted, 1 it had this status already, 2 it had the other one, 3 not a member,
-- 4 unknown join. A second row follows when this call completed the join.
CREATE OR REPLACE FUNCTION {join+_report}(p_join uuid, p_message uuid, p_status smallint)
RETURNS TABLE (outcome smallint, join_id uuid, join_status smallint, completed_steps integer, failed_steps integer, expected_steps integer)
LANGUAGE plpgsql
{lookup_guards}
AS $$
#variable_conflict use_column
DECLARE
    v_status smallint;
    v_outcome smallint;
BEGIN
    SELECT m.status INTO v_status
    FROM {join_member} AS m
    WHERE m.message_id = p_message AND m.join_id = p_join
    FOR UPDATE;
    IF NOT FOUND THEN
        v_outcome := CASE WHEN EXISTS (SELECT FROM {join} AS j WHERE j.join_id = p_join) THEN 3 ELSE 4 END;
    ELSE
        v_outcome := CASE v_status WHEN 0 THEN 0 WHEN p_status THEN 1 ELSE 2 END;
    END IF;
    RETURN QUERY SELECT v_outcome, NULL::uuid, NULL::smallint, NULL::integer, NULL::integer, NULL::integer;
    IF v_outcome = 0 THEN
        RETURN QUERY
        SELECT NULL::smallint, c.join_id, c.join_status, c.completed_steps, c.failed_steps, c.expected_steps
        FROM {join+_count}(p_join, ARRAY[p_message], p_status) AS c;
    END IF;
END
$$;
