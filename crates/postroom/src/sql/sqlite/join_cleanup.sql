-- Finished joins last updated longer than ?1 microseconds ago, at most ?2; members go with them, by
-- their foreign key. A join that a message still waits for stays.
DELETE FROM {join}
WHERE join_id IN (
    SELECT j.join_id
    FROM {join} AS j
    WHERE j.status <> 0
      AND j.last_updated_at < {now} - ?1
      AND NOT EXISTS (
          SELECT 1 FROM {join+_wait} AS w JOIN {outbox} AS o ON o.id = w.message_id
          WHERE w.join_id = j.join_id)
    LIMIT ?2);

SELECT changes()
