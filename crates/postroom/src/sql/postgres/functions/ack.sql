-- Moves the messages that p_owner still holds to the archive (or drops them when p_keep is false)
-- and counts them as completed steps of their joins.
-- Returns one row per message that really changed (id set), and one per join that this call
-- completed (join_id set). Unknown, foreign and repeated ids are ignored.
-- Locks, in this order: queue rows, join members, joins by join_id, then the wait messages of
-- completed joins. The members are read by a statement of their own, after the queue rows are
-- locked: its snapshot then sees every attach that got there first.
CREATE OR REPLACE FUNCTION {queue+_ack}(p_owner uuid, p_ids uuid[], p_worker text, p_keep boolean DEFAULT true)
RETURNS TABLE (id uuid, join_id uuid, join_status smallint, completed_steps integer, failed_steps integer, expected_steps integer)
LANGUAGE plpgsql
{guards}
AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_messages {message_id_type}[];
BEGIN
    {read_committed}
    WITH gone AS (
        DELETE FROM {queue}
        WHERE id = ANY (p_ids) AND owner_token = p_owner
        RETURNING *),
    kept AS (
        INSERT INTO {queue+_done} ({columns}, processed_at, processed_by)
        SELECT {columns}, statement_timestamp(), p_worker
        FROM gone
        WHERE p_keep)
    SELECT array_agg(id), array_agg(message_id) INTO v_ids, v_messages FROM gone;
    RETURN QUERY
    SELECT s.id, NULL::uuid, NULL::smallint, NULL::integer, NULL::integer, NULL::integer
    FROM unnest(v_ids) AS s (id);
    {count_completed}
END
$$;
