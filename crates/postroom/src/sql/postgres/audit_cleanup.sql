-- Deletes entries older than $1 microseconds, at most $2, oldest first. Returns how many went.
WITH doomed AS (
    SELECT id
    FROM {outbox+_audit}
    WHERE recorded_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
    ORDER BY recorded_at
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM {outbox+_audit} AS a
    USING doomed
    WHERE a.id = doomed.id
    RETURNING 1)
SELECT count(*) FROM gone
