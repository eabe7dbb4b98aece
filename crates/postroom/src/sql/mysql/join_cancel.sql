-- ?1 join id. Returns 1 cancelled, 0 it had finished before, -1 unknown; wakes its wait messages.
SELECT COUNT(*) INTO @postroom_locked
FROM (SELECT j.status FROM {join} AS j WHERE j.join_id = ?1 FOR UPDATE) AS l;

SELECT COALESCE((SELECT j.status = 0 FROM {join} AS j WHERE j.join_id = ?1), -1);

UPDATE {join}
SET status = 3, last_updated_at = {now}
WHERE join_id = ?1 AND status = 0;

SET @postroom_counted = ROW_COUNT();

UPDATE {join+_wait} AS w
STRAIGHT_JOIN {outbox} AS o FORCE INDEX (PRIMARY) ON o.id = w.message_id
SET o.next_attempt_at = {now}
WHERE @postroom_counted > 0 AND w.join_id = ?1
