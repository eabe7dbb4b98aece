-- The whole queue in one view, for people: live, done and dead messages.
-- status: 0 ready, 1 in flight, 2 done, 3 dead; in the inbox also 4 seen, 5 marked processing.
CREATE OR REPLACE VIEW {queue+_all} AS
SELECT {columns}, next_attempt_at, locked_until, owner_token,
       IF(locked_until >= {now}, 1, 0) AS status,
       0 AS is_processed, NULL AS processed_at, NULL AS processed_by
FROM {queue}
UNION ALL
SELECT {columns}, NULL, NULL, NULL, 2, 1, processed_at, processed_by
FROM {queue+_done}
UNION ALL
SELECT {columns}, NULL, NULL, NULL, 3, 0, processed_at, processed_by
FROM {queue+_dead}
{seen_rows};
