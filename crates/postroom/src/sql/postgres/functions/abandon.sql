-- Hands the messages that p_owner still holds back for a later attempt. One delay, error and
-- deferral flag per id; the last one serves the rest. A NULL delay is the default backoff,
-- min(2^attempts, 60) seconds with attempts counted after this one. Returns the ids that changed.
-- A redelivery may have moved the due time while the message was leased: never before it.
-- A wait message whose join has completed meanwhile is ready at once: the second statement has a
-- fresh snapshot and holds the row, so either it sees the completed join, or the completing
-- transaction is still to come and will wake the row itself.
CREATE OR REPLACE FUNCTION {queue+_abandon}(p_owner uuid, p_ids uuid[], p_delays interval[], p_errors text[], p_deferred boolean[])
RETURNS SETOF uuid
LANGUAGE plpgsql
{guards}
AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
BEGIN
    {read_committed}
    WITH settled AS (
        SELECT s.id,
               p_delays[least(s.n, cardinality(p_delays))] AS delay,
               p_errors[least(s.n, cardinality(p_errors))] AS error,
               p_deferred[least(s.n, cardinality(p_deferred))] AS deferred
        FROM unnest(p_ids) WITH ORDINALITY AS s (id, n)),
    released AS (
        UPDATE {queue} AS q
        SET owner_token = NULL,
            locked_until = NULL,
            attempt_count = q.attempt_count + 1,
            deferral_count = q.deferral_count + settled.deferred::integer,
            last_attempt_at = statement_timestamp(),
            last_error = coalesce(settled.error, q.last_error),
            {set_backoff}
            next_attempt_at = greatest(q.due_time, statement_timestamp() + coalesce(settled.delay,
                make_interval(secs => least(power(2, least(q.attempt_count + 1, 30)), 60))))
        FROM settled
        WHERE q.id = settled.id AND q.owner_token = p_owner
        RETURNING q.id)
    SELECT array_agg(id) INTO v_ids FROM released;
    {wake_completed}
    RETURN QUERY SELECT s.id FROM unnest(v_ids) AS s (id);
END
$$;
