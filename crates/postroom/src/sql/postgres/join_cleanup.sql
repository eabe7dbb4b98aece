-- Finished joins last updated longer than $1 microseconds ago, at most $2; members go with them. A join
-- that a message still waits for stays.
WITH gone AS (
    DELETE FROM {join}
    WHERE join_id IN (
        SELECT join_id
        FROM {join}
        WHERE status <> 0
          AND last_updated_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
          AND NOT EXISTS (
              SELECT FROM {join+_wait} AS w JOIN {outbox} AS o ON o.id = w.message_id
              WHERE w.join_id = {join}.join_id)
        LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED)
    RETURNING 1)
SELECT count(*) FROM gone
