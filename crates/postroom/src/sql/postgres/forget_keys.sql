-- Forgets keys older than $1 microseconds, or made before $2 (microseconds since 1970), at most $3,
-- unless their message is unfinished or dead. Returns how many went.
WITH doomed AS (
    SELECT k.key
    FROM {outbox+_key} AS k
    WHERE k.created_at < coalesce('epoch'::timestamptz + $2::bigint * interval '1 microsecond',
                                  statement_timestamp() - $1::bigint * interval '1 microsecond')
      AND NOT EXISTS (SELECT FROM {outbox} AS q WHERE q.id = k.id)
      AND NOT EXISTS (SELECT FROM {outbox+_dead} AS d WHERE d.id = k.id)
    ORDER BY k.created_at
    LIMIT $3::bigint
    FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM {outbox+_key} AS k
    USING doomed
    WHERE k.key = doomed.key
    RETURNING 1)
SELECT count(*) FROM gone
