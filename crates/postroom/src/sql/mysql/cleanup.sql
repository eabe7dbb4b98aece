-- Done messages older than ?1 microseconds, or processed before ?2, at most ?3 of them, oldest
-- first. What is to go is written down and locked first: each statement has a time of its own, and all
-- of them must mean the same rows. Members that are still pending although their message is done are
-- counted, so that no join waits for a row that is gone. The last row is the count.
SELECT JSON_ARRAYAGG(c.seq) INTO @postroom_chosen
FROM (
    SELECT seq
    FROM {queue+_done} FORCE INDEX ({name queue+_done_time})
    WHERE processed_at < COALESCE(?2, {now} - ?1)
    ORDER BY processed_at, seq
    LIMIT ?3
    FOR UPDATE) AS c;

{count_expired}

DELETE d
FROM JSON_TABLE(@postroom_chosen, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS c
STRAIGHT_JOIN {queue+_done} AS d FORCE INDEX (PRIMARY) ON d.seq = c.seq;

SELECT ROW_COUNT()
