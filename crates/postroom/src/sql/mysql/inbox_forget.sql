-- Done messages last seen longer than ?1 microseconds ago, at most ?2: after this, the same
-- (source, message id) counts as new. Seen, processing and dead ones stay.
SELECT JSON_ARRAYAGG(JSON_ARRAY(HEX(c.message_id), HEX(c.source))) INTO @postroom_chosen
FROM (
    SELECT s.message_id, s.source
    FROM {inbox+_seen} AS s
    WHERE s.last_seen < {now} - ?1
      AND (s.state = 3 OR (s.state = 2
        AND NOT EXISTS (SELECT 1 FROM {inbox} AS q WHERE q.id = s.work_id)
        AND NOT EXISTS (SELECT 1 FROM {inbox+_dead} AS d WHERE d.id = s.work_id)))
    LIMIT ?2
    FOR UPDATE SKIP LOCKED) AS c;

DELETE s
FROM JSON_TABLE(@postroom_chosen, '$[*]' COLUMNS (message_id VARCHAR(2040) PATH '$[0]', source VARCHAR(2040) PATH '$[1]')) AS c
STRAIGHT_JOIN {inbox+_seen} AS s FORCE INDEX (PRIMARY)
    ON s.message_id = UNHEX(c.message_id) AND s.source = UNHEX(c.source);

SELECT ROW_COUNT()
