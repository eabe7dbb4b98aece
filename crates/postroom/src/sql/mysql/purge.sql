-- ?1 ids of dead messages as JSON, or NULL for those that died longer than ?2 microseconds ago,
-- at most ?3, oldest first. What is to go is written down, and then locked: all statements must mean
-- the same rows. Members that are still pending although their message is dead are counted, so that no
-- join waits for a row that is gone. The last row is the count.
SELECT JSON_ARRAYAGG(HEX(c.id)) INTO @postroom_chosen
FROM {dead_ids} AS c;

SELECT IF(?1 IS NULL, JSON_ARRAYAGG(HEX(c.id)), @postroom_chosen) INTO @postroom_chosen
FROM (
    SELECT id
    FROM {queue+_dead} FORCE INDEX ({name queue+_dead_time})
    WHERE ?1 IS NULL AND processed_at <= {now} - ?2
    ORDER BY processed_at
    LIMIT ?3) AS c;

{lock_seen}

SELECT JSON_ARRAYAGG(HEX(l.id)) INTO @postroom_chosen
FROM (
    SELECT d.id
    FROM {chosen} AS c
    STRAIGHT_JOIN {queue+_dead} AS d FORCE INDEX (PRIMARY) ON d.id = UNHEX(c.id)
    FOR UPDATE) AS l;

{count_purged}

{forget_seen}

DELETE d
FROM {chosen} AS c
STRAIGHT_JOIN {queue+_dead} AS d FORCE INDEX (PRIMARY) ON d.id = UNHEX(c.id);

SELECT ROW_COUNT()
