-- ?1 source, ?2 message id, ?3 hash or NULL. Returns 1 if done, plus 2 if the hash differs; the first
-- hash stays.
INSERT INTO {inbox+_seen} (source, message_id, hash, first_seen, last_seen)
VALUES (?1, ?2, ?3, {now}, {now})
ON DUPLICATE KEY UPDATE last_seen = {now}, hash = COALESCE(hash, ?3);

SELECT (s.state = 3 OR (s.state = 2
           AND NOT EXISTS (SELECT 1 FROM {inbox} AS q WHERE q.id = s.work_id)
           AND NOT EXISTS (SELECT 1 FROM {inbox+_dead} AS d WHERE d.id = s.work_id)))
       + COALESCE(s.hash <> ?3, 0) * 2
FROM {inbox+_seen} AS s
WHERE s.message_id = ?2 AND s.source = ?1
