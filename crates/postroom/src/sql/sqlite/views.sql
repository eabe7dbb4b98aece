-- The whole queue in one view, for people and for lookups: live, done and dead messages.
-- status: 0 ready, 1 in flight, 2 done, 3 dead; in the inbox also 4 seen, 5 marked processing.
DROP VIEW IF EXISTS {queue+_all};

CREATE VIEW {queue+_all} AS
SELECT {columns}, next_attempt_at, locked_until, owner_token,
       CASE WHEN locked_until >= {now} AND locked_from <= {now} THEN 1 ELSE 0 END AS status,
       0 AS is_processed, NULL AS processed_at, NULL AS processed_by
FROM {queue}
UNION ALL
SELECT {columns}, NULL, NULL, NULL, 2, 1, processed_at, processed_by
FROM {queue+_done}
UNION ALL
SELECT {columns}, NULL, NULL, NULL, 3, 0, processed_at, processed_by
FROM {queue+_dead}
{seen_rows};
