-- ?1 ids of dead messages as JSON, or NULL for those that died longer than ?2 microseconds ago,
-- at most ?3, oldest first. What is to go is written down first: each statement has a time of its
-- own, and all of them must mean the same rows. Members that are still pending although their message
-- is dead are counted, so that no join waits for a row that is gone. The last row is the count.
DELETE FROM temp.postroom_chosen;

INSERT INTO temp.postroom_chosen (seq, message_id)
SELECT seq, message_id
FROM {queue+_dead}
WHERE ?1 IS NOT NULL AND id IN {dead_ids};

INSERT INTO temp.postroom_chosen (seq, message_id)
SELECT seq, message_id
FROM {queue+_dead}
WHERE ?1 IS NULL AND processed_at <= {now} - ?2
ORDER BY processed_at
LIMIT ?3;

{count_purged}

{forget_seen}

DELETE FROM {queue+_dead}
WHERE seq IN (SELECT seq FROM temp.postroom_chosen);

SELECT changes()
