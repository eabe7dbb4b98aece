-- Frees expired leases and returns how many. Attempts are not counted: nobody tried and failed. A message
-- that somebody is just settling is passed over. At most 100,000 at once: they are written down in a
-- variable, and what is left can be claimed all the same.
SELECT JSON_ARRAYAGG(HEX(c.id)) INTO @postroom_chosen
FROM (
    SELECT id
    FROM {queue}
    WHERE locked_until < {now}
    LIMIT 100000
    FOR UPDATE SKIP LOCKED) AS c;

UPDATE {chosen} AS c
STRAIGHT_JOIN {queue} AS q FORCE INDEX (PRIMARY) ON q.id = UNHEX(c.id)
SET q.owner_token = NULL, q.locked_until = NULL;

SELECT ROW_COUNT()
