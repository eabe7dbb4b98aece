-- Deletes entries older than ?1 microseconds, at most ?2, oldest first. The last row is the count.
DELETE FROM {outbox+_audit}
WHERE recorded_at < {now} - ?1
ORDER BY recorded_at
LIMIT ?2;

SELECT ROW_COUNT()
