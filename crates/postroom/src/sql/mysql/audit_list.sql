-- Entries, newest first: those before the id ?1 or NULL, about the subject ?2 or NULL, at most ?3.
SELECT id, recorded_at, actor, action, subject, count, detail
FROM {outbox+_audit}
WHERE id < coalesce(?1, 9223372036854775807)
  AND (?2 IS NULL OR subject = ?2)
ORDER BY id DESC
LIMIT ?3
