-- Counts the pending members whose message is already done or dead: those that were attached too
-- late for their ack or fail to see them. The first row holds how many were counted (-1: unknown
-- join); a second follows when that completed the join.
CREATE OR REPLACE FUNCTION {join+_reconcile}(p_join uuid)
RETURNS TABLE (counted integer, join_id uuid, join_status smallint, completed_steps integer, failed_steps integer, expected_steps integer)
LANGUAGE plpgsql
{lookup_guards}
AS $$
#variable_conflict use_column
DECLARE
    v_done uuid[];
    v_dead uuid[];
BEGIN
    IF NOT EXISTS (SELECT FROM {join} AS j WHERE j.join_id = p_join) THEN
        RETURN QUERY SELECT -1, NULL::uuid, NULL::smallint, NULL::integer, NULL::integer, NULL::integer;
        RETURN;
    END IF;
    WITH states AS (
        SELECT m.message_id, {join+_message_state}(m.message_id) AS state
        FROM {join_member} AS m
        WHERE m.join_id = p_join AND m.status = 0)
    SELECT array_agg(s.message_id) FILTER (WHERE s.state = 1), array_agg(s.message_id) FILTER (WHERE s.state = 2)
    INTO v_done, v_dead
    FROM states AS s;
    RETURN QUERY
    SELECT coalesce(cardinality(v_done), 0) + coalesce(cardinality(v_dead), 0),
           NULL::uuid, NULL::smallint, NULL::integer, NULL::integer, NULL::integer;
    RETURN QUERY
    SELECT NULL::integer, c.join_id, c.join_status, c.completed_steps, c.failed_steps, c.expected_steps
    FROM {join+_count}(p_join, v_done, 1::smallint) AS c;
    RETURN QUERY
    SELECT NULL::integer, c.join_id, c.join_status, c.completed_steps, c.failed_steps, c.expected_steps
    FROM {join+_count}(p_join, v_dead, 2::smallint) AS c;
END
$$;
