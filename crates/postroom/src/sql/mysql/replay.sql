-- ?1 ids of dead messages as JSON. They are ready again, with a fresh budget of attempts, unless the
-- same id has been enqueued anew and is live. Returns the ids that changed.
SELECT JSON_ARRAYAGG(HEX(c.id)) INTO @postroom_chosen
FROM {dead_ids} AS c;

{lock_seen}

SELECT JSON_ARRAYAGG(HEX(l.id)) INTO @postroom_chosen
FROM (
    SELECT d.id
    FROM {chosen} AS c
    STRAIGHT_JOIN {queue+_dead} AS d FORCE INDEX (PRIMARY) ON d.id = UNHEX(c.id)
    WHERE NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.id = d.id)
    FOR UPDATE) AS l;

INSERT INTO {queue} ({columns}, next_attempt_at)
SELECT {dead_columns_fresh}, GREATEST(COALESCE(d.due_time, 0), {now})
FROM {chosen} AS c
STRAIGHT_JOIN {queue+_dead} AS d FORCE INDEX (PRIMARY) ON d.id = UNHEX(c.id)
WHERE d.topic IS NOT NULL;

{revive_seen}

SELECT d.id
FROM {chosen} AS c
STRAIGHT_JOIN {queue+_dead} AS d FORCE INDEX (PRIMARY) ON d.id = UNHEX(c.id);

DELETE d
FROM {chosen} AS c
STRAIGHT_JOIN {queue+_dead} AS d FORCE INDEX (PRIMARY) ON d.id = UNHEX(c.id)
