-- $1 message id, $2 source or NULL for any; at most two rows, to see whether a bare id is ambiguous.
-- Columns as in a claim, then when and by whom it was processed, and its status: 0 or 1 live,
-- 2 done, 3 dead, 4 seen, 5 marked processing.
SELECT s.work_id, s.source, s.message_id, q.topic, q.payload, q.headers, q.correlation_id, s.first_seen, q.due_time,
       q.next_attempt_at, q.locked_until, q.owner_token, coalesce(q.attempt_count, 0), coalesce(q.deferral_count, 0),
       coalesce(q.delivery_count, 0), q.last_attempt_at, q.last_error, s.hash, s.first_seen, s.last_seen,
       q.processed_at, q.processed_by,
       CASE s.state WHEN 0 THEN 4 WHEN 1 THEN 5 WHEN 3 THEN 2 ELSE coalesce(q.status, 2) END
FROM {inbox+_seen} AS s
LEFT JOIN LATERAL (
    SELECT topic, payload, headers, correlation_id, due_time, next_attempt_at, locked_until, owner_token,
           attempt_count, deferral_count, delivery_count, last_attempt_at, last_error,
           NULL::timestamptz AS processed_at, NULL::text AS processed_by,
           CASE WHEN locked_until >= statement_timestamp() THEN 1 ELSE 0 END AS status
    FROM {inbox}
    WHERE id = s.work_id
    UNION ALL
    SELECT topic, payload, headers, correlation_id, due_time, NULL, NULL, NULL,
           attempt_count, deferral_count, delivery_count, last_attempt_at, last_error, processed_at, processed_by, 3
    FROM {inbox+_dead}
    WHERE id = s.work_id
    UNION ALL
    SELECT topic, payload, headers, correlation_id, due_time, NULL, NULL, NULL,
           attempt_count, deferral_count, delivery_count, last_attempt_at, last_error, processed_at, processed_by, 2
    FROM {inbox+_done}
    WHERE id = s.work_id
    LIMIT 1) AS q ON true
WHERE s.message_id = $1::text AND ($2::text IS NULL OR s.source = $2::text)
LIMIT 2
