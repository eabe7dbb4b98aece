-- ?1 message id, ?2 source or NULL for any; at most two rows, to see whether a bare id is ambiguous.
-- Columns as in a claim, then when and by whom it was processed, and its status: 0 or 1 live,
-- 2 done, 3 dead, 4 seen, 5 marked processing.
SELECT s.work_id, s.source, s.message_id, COALESCE(q.topic, d.topic, o.topic), COALESCE(q.payload, d.payload, o.payload),
       COALESCE(q.headers, d.headers, o.headers), COALESCE(q.correlation_id, d.correlation_id, o.correlation_id),
       s.first_seen, COALESCE(q.due_time, d.due_time, o.due_time), q.next_attempt_at, q.locked_until, q.owner_token,
       COALESCE(q.attempt_count, d.attempt_count, o.attempt_count, 0),
       COALESCE(q.deferral_count, d.deferral_count, o.deferral_count, 0),
       COALESCE(q.delivery_count, d.delivery_count, o.delivery_count, 0),
       COALESCE(q.last_attempt_at, d.last_attempt_at, o.last_attempt_at), COALESCE(q.last_error, d.last_error, o.last_error),
       s.hash, s.first_seen, s.last_seen, COALESCE(d.processed_at, o.processed_at), COALESCE(d.processed_by, o.processed_by),
       CASE
           WHEN s.state = 0 THEN 4
           WHEN s.state = 1 THEN 5
           WHEN q.id IS NOT NULL THEN IF(q.locked_until >= {now}, 1, 0)
           WHEN d.id IS NOT NULL THEN 3
           ELSE 2 END
FROM {inbox+_seen} AS s
LEFT JOIN {inbox} AS q ON q.id = s.work_id
LEFT JOIN {inbox+_dead} AS d ON q.id IS NULL AND d.id = s.work_id
LEFT JOIN {inbox+_done} AS o ON q.id IS NULL AND d.id IS NULL AND o.id = s.work_id
WHERE s.message_id = ?1 AND (?2 IS NULL OR s.source = ?2)
LIMIT 2
