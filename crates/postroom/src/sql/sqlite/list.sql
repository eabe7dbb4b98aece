-- ?1 statuses as JSON, ?2 topic or NULL, ?3 list what follows this id or NULL, ?4 at most so many.
SELECT {shown}
FROM {queue+_all} AS q
WHERE q.status IN (SELECT value FROM json_each(?1))
  AND (?2 IS NULL OR q.topic = ?2)
  AND (?3 IS NULL OR q.id > ?3)
ORDER BY q.id
LIMIT ?4
