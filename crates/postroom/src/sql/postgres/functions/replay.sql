-- Makes dead messages ready again, with a fresh budget of attempts, unless the same id has been
-- enqueued anew and is live. Returns the ids that changed.
CREATE OR REPLACE FUNCTION {queue+_replay}(p_ids uuid[])
RETURNS SETOF uuid
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    {lock_seen}
    RETURN QUERY
    WITH gone AS (
        DELETE FROM {queue+_dead} AS d
        WHERE d.id = ANY (p_ids) AND NOT EXISTS (SELECT FROM {queue} AS q WHERE q.id = d.id)
        RETURNING *),
    revived AS (
        INSERT INTO {queue} ({columns}, next_attempt_at)
        SELECT {columns_fresh}, greatest(due_time, statement_timestamp())
        FROM gone
        WHERE topic IS NOT NULL)
    SELECT id FROM gone;
END
$$;
