-- One page of messages, in the order of their ids. ?1 statuses as JSON; ?2 topic, ?3 correlation id,
-- ?4 enqueued at least so many microseconds ago, ?5 less than so many, each or NULL; ids from ?6 to ?7;
-- inbox only: ?8 source or NULL; then the limit; inbox only: ?10 whether to include those that were never
-- enqueued, and after which of them, or NULL: ?11 first seen, ?12 source, ?13 message id. Each table is
-- asked for a page of its own, which comes by its index of ids, without a sort.
SELECT {shown}
FROM (
    SELECT * FROM (
    SELECT {columns}, next_attempt_at, locked_until, owner_token,
           CASE WHEN locked_until >= {now} AND locked_from <= {now} THEN 1 ELSE 0 END AS status,
           NULL AS processed_at, NULL AS processed_by
    FROM {queue}
    WHERE {listed}
      AND CASE WHEN locked_until >= {now} AND locked_from <= {now} THEN 1 ELSE 0 END
          IN (SELECT value FROM json_each(?1))
    ORDER BY id {direction}
    LIMIT {limit})
    UNION ALL
    SELECT * FROM (
    SELECT {columns}, NULL, NULL, NULL, 2, processed_at, processed_by
    FROM {queue+_done}
    WHERE 2 IN (SELECT value FROM json_each(?1))
      AND {listed}
    ORDER BY id {direction}
    LIMIT {limit})
    UNION ALL
    SELECT * FROM (
    SELECT {columns}, NULL, NULL, NULL, 3, processed_at, processed_by
    FROM {queue+_dead}
    WHERE 3 IN (SELECT value FROM json_each(?1))
      AND {listed}
    ORDER BY id {direction}
    LIMIT {limit})
    {listed_seen}) AS q
ORDER BY id {direction_and_nulls}, created_at {direction}{then_by_key}
LIMIT {limit}
