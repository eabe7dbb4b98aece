-- ?1 join id, ?2 list what follows this message id or NULL, ?3 at most so many.
SELECT message_id, status, created_at
FROM {join_member}
WHERE join_id = ?1 AND (?2 IS NULL OR message_id > ?2)
ORDER BY message_id
LIMIT ?3
