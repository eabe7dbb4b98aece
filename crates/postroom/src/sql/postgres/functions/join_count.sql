-- Gives the pending members among p_messages the status p_status (1 completed, 2 failed), in one
-- join or in all (p_join NULL), and moves the counters of their joins by exactly the members that
-- changed, never beyond the expected steps. Returns the joins that this call completed, and makes
-- their wait messages ready.
-- A store that has no joins is asked nothing: its table of members has no page.
-- Locks: members, then joins in join_id order (without the order two acks deadlock), then waits.
CREATE OR REPLACE FUNCTION {join+_count}(p_join uuid, p_messages uuid[], p_status smallint)
RETURNS TABLE (id uuid, join_id uuid, join_status smallint, completed_steps integer, failed_steps integer, expected_steps integer)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_joins uuid[];
    v_steps integer[];
    v_completed uuid[];
BEGIN
    IF pg_relation_size('{join_member}') = 0 THEN
        RETURN;
    END IF;

    WITH counted AS (
        UPDATE {join_member} AS m
        SET status = p_status
        WHERE m.message_id = ANY (p_messages)
          AND m.status = 0
          AND (p_join IS NULL OR m.join_id = p_join)
        RETURNING m.join_id),
    steps AS (
        SELECT c.join_id, count(*)::integer AS n FROM counted AS c GROUP BY c.join_id)
    SELECT array_agg(s.join_id ORDER BY s.join_id), array_agg(s.n ORDER BY s.join_id)
    INTO v_joins, v_steps
    FROM steps AS s;

    IF v_joins IS NULL THEN
        RETURN;
    END IF;

    PERFORM 1 FROM {join} AS j WHERE j.join_id = ANY (v_joins) ORDER BY j.join_id FOR NO KEY UPDATE;

    WITH steps AS (
        SELECT s.join_id, least(s.n, j.expected_steps - j.completed_steps - j.failed_steps) AS n
        FROM unnest(v_joins, v_steps) AS s (join_id, n)
        JOIN {join} AS j ON j.join_id = s.join_id
        WHERE j.status = 0),
    moved AS (
        UPDATE {join} AS j
        SET completed_steps = j.completed_steps + CASE WHEN p_status = 1 THEN s.n ELSE 0 END,
            failed_steps = j.failed_steps + CASE WHEN p_status = 2 THEN s.n ELSE 0 END,
            status = CASE
                WHEN j.completed_steps + j.failed_steps + s.n < j.expected_steps THEN 0
                WHEN j.failed_steps > 0 OR p_status = 2 THEN 2
                ELSE 1 END,
            last_updated_at = clock_timestamp()
        FROM steps AS s
        WHERE j.join_id = s.join_id
        RETURNING j.join_id, j.status)
    SELECT array_agg(m.join_id) INTO v_completed FROM moved AS m WHERE m.status <> 0;

    IF v_completed IS NULL THEN
        RETURN;
    END IF;

    PERFORM {join+_wake}(v_completed);
    RETURN QUERY
    SELECT NULL::uuid, j.join_id, j.status, j.completed_steps, j.failed_steps, j.expected_steps
    FROM {join} AS j
    WHERE j.join_id = ANY (v_completed);
END
$$;
