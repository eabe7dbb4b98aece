-- Done messages older than ?1 microseconds, or processed before ?2, at most ?3 of them, oldest
-- first. Members that are still pending although their message is done are counted first, so that
-- no join waits for a row that is gone. Only the last statement's row is the count.
{count_expired}

DELETE FROM {queue+_done}
WHERE seq IN (
    SELECT seq
    FROM {queue+_done}
    WHERE processed_at < coalesce(?2, {now} - ?1)
    ORDER BY processed_at
    LIMIT ?3);

SELECT changes()
