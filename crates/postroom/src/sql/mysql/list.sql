-- One page of messages, in the order of their ids. ?1 statuses as JSON; ?2 topic, ?3 correlation id,
-- ?4 enqueued at least so many microseconds ago, ?5 less than so many, each or NULL; ids from ?6 to ?7;
-- inbox only: ?8 source or NULL; then the limit; inbox only: ?10 whether to include those that were never
-- enqueued, and after which of them, or NULL: ?11 first seen, ?12 source, ?13 message id. Each table is
-- asked for a page of its own, which comes by its index of ids, without a sort.
-- NULL comes first by itself, and last in the other direction.
SELECT {shown}
FROM (
    (SELECT {columns}, next_attempt_at, locked_until, owner_token,
            IF(locked_until >= {now}, 1, 0) AS status, NULL AS processed_at, NULL AS processed_by
     FROM {queue} FORCE INDEX (PRIMARY)
     WHERE {listed}
       AND JSON_CONTAINS(?1, IF(locked_until >= {now}, '1', '0'))
     ORDER BY id {direction}
     LIMIT {limit})
    UNION ALL
    (SELECT {columns}, NULL, NULL, NULL, 2, processed_at, processed_by
     FROM {queue+_done} FORCE INDEX ({name queue+_done_id})
     WHERE JSON_CONTAINS(?1, '2')
       AND {listed}
     ORDER BY id {direction}
     LIMIT {limit})
    UNION ALL
    (SELECT {columns}, NULL, NULL, NULL, 3, processed_at, processed_by
     FROM {queue+_dead} FORCE INDEX (PRIMARY)
     WHERE JSON_CONTAINS(?1, '3')
       AND {listed}
     ORDER BY id {direction}
     LIMIT {limit})
    {listed_seen}) AS q
{with_seen}
ORDER BY q.id {direction}, q.created_at {direction}{then_by_key}
LIMIT {limit}
