-- ?1 owner, ?2 lease in microseconds, ?3 batch, ?4 where to look first, in microseconds, or NULL,
-- ?5 whether to look everywhere else too (0 or 1). Returns the claimed messages.
-- The ready index is walked in its own order, which is that of the claim: no sort, so that SKIP LOCKED
-- locks what it takes and nothing else. What was taken is written down, because an UPDATE returns
-- nothing, and the same owner may hold other messages.
SELECT JSON_ARRAYAGG(HEX(c.id)) INTO @postroom_chosen
FROM (
    SELECT id
    FROM {queue} FORCE INDEX ({name queue+_ready})
    WHERE next_attempt_at >= LEAST(COALESCE(IF(?5 <> 0, NULL, ?4), -9223372036854775807), {now} - {late_commits})
      AND next_attempt_at <= {now}
      AND (locked_until IS NULL OR locked_until < {now})
    ORDER BY next_attempt_at, id
    LIMIT ?3
    FOR UPDATE SKIP LOCKED) AS c;

UPDATE {chosen} AS c
STRAIGHT_JOIN {queue} AS q FORCE INDEX (PRIMARY) ON q.id = UNHEX(c.id)
SET q.owner_token = ?1,
    q.locked_until = {now} + ?2,
    q.delivery_count = q.delivery_count + 1;

SELECT {returned}
FROM {chosen} AS c
STRAIGHT_JOIN {queue} AS q FORCE INDEX (PRIMARY) ON q.id = UNHEX(c.id)
{with_seen}
