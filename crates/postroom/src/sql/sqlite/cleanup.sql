-- Done messages older than ?1 microseconds, or processed before ?2, at most ?3 of them, oldest
-- first. What is to go is written down first: each statement has a time of its own, and all of them
-- must mean the same rows. Members that are still pending although their message is done are counted,
-- so that no join waits for a row that is gone. The last row is the count.
DELETE FROM temp.postroom_chosen;

INSERT INTO temp.postroom_chosen (seq, message_id)
SELECT seq, message_id
FROM {queue+_done}
WHERE processed_at < coalesce(?2, {now} - ?1)
ORDER BY processed_at
LIMIT ?3;

{count_expired}

DELETE FROM {queue+_done}
WHERE seq IN (SELECT seq FROM temp.postroom_chosen);

SELECT changes()
