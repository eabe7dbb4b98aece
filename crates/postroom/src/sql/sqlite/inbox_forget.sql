-- Done messages last seen longer than ?1 microseconds ago, at most ?2: after this, the same
-- (source, message id) counts as new. Seen, processing and dead ones stay.
DELETE FROM {inbox+_seen}
WHERE (message_id, source) IN (
    SELECT s.message_id, s.source
    FROM {inbox+_seen} AS s
    WHERE s.last_seen < {now} - ?1
      AND (s.state = 3 OR (s.state = 2
        AND NOT EXISTS (SELECT 1 FROM {inbox} AS q WHERE q.id = s.work_id)
        AND NOT EXISTS (SELECT 1 FROM {inbox+_dead} AS d WHERE d.id = s.work_id)))
    LIMIT ?2);

SELECT changes()
