-- ?1 owner, ?2 lease in microseconds, ?3 batch. There is one writer at a time, so nobody else can
-- take the same rows. Deleted rows leave no trace in the index: no lower bound is needed here.
UPDATE {queue} AS q
SET owner_token = ?1,
    locked_from = {now},
    locked_until = {now} + ?2,
    delivery_count = delivery_count + 1
WHERE seq IN (
    SELECT seq
    FROM {queue}
    WHERE next_attempt_at <= {now}
      AND (locked_until IS NULL OR locked_until < {now} OR locked_from > {now})
    ORDER BY next_attempt_at, seq
    LIMIT ?3)
RETURNING {returned}
