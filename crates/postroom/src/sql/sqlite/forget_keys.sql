-- Forgets keys older than ?1 microseconds, or made before ?2 (microseconds since 1970), at most ?3,
-- unless their message is unfinished or dead. The last row is the count.
DELETE FROM {outbox+_key}
WHERE key IN (
    SELECT k.key
    FROM {outbox+_key} AS k
    WHERE k.created_at < coalesce(?2, {now} - ?1)
      AND NOT EXISTS (SELECT 1 FROM {outbox} AS q WHERE q.id = k.id)
      AND NOT EXISTS (SELECT 1 FROM {outbox+_dead} AS d WHERE d.id = k.id)
    ORDER BY k.created_at
    LIMIT ?3);

SELECT changes()
