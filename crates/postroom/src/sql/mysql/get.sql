-- ?1 work item id. An id that was enqueued anew may be in two places: the live one counts. Each table is
-- asked by its key: through the view, the server might write all of it down first.
SELECT {shown}
FROM (
    SELECT {columns}, next_attempt_at, locked_until, owner_token,
           IF(locked_until >= {now}, 1, 0) AS status, NULL AS processed_at, NULL AS processed_by
    FROM {queue}
    WHERE id = ?1
    UNION ALL
    SELECT {columns}, NULL, NULL, NULL, 2, processed_at, processed_by
    FROM {queue+_done}
    WHERE id = ?1
    UNION ALL
    SELECT {columns}, NULL, NULL, NULL, 3, processed_at, processed_by
    FROM {queue+_dead}
    WHERE id = ?1) AS q
{with_seen}
ORDER BY q.status
LIMIT 1
