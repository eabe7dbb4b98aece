-- Finished joins last updated longer than $1 microseconds ago, at most $2; members go with them.
WITH gone AS (
    DELETE FROM {join}
    WHERE join_id IN (
        SELECT join_id
        FROM {join}
        WHERE status <> 0 AND last_updated_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
        LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED)
    RETURNING 1)
SELECT count(*) FROM gone
