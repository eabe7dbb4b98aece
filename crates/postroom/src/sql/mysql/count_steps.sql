-- A part of ack, fail, report, reconcile, purge and cleanup: counts the pending members among the
-- settled messages as steps. 8 + step marks the members that this call counts until it has counted
-- them; nobody else sees that mark, because it is gone when the transaction commits. Where no member
-- was marked, the variable keeps the rest from looking at any table.
-- Locks: members, then joins in the order of their ids (without the order two acks deadlock), then waits.
UPDATE {settled} AS g
STRAIGHT_JOIN {join_member} AS m FORCE INDEX (PRIMARY) ON m.message_id = g.message_id {in_join}
SET m.status = 8 + {step}
WHERE m.status = 0;

SET @postroom_counted = ROW_COUNT();

UPDATE {moved} AS s
STRAIGHT_JOIN {join} AS j FORCE INDEX (PRIMARY) ON j.join_id = s.join_id
SET j.completed_steps = j.completed_steps
        + IF({step} = 1, LEAST(s.n, j.expected_steps - j.completed_steps - j.failed_steps), 0),
    j.failed_steps = j.failed_steps
        + IF({step} = 2, LEAST(s.n, j.expected_steps - j.completed_steps - j.failed_steps), 0),
    j.last_updated_at = {now}
WHERE j.status = 0;

SELECT NULL, j.join_id, IF(j.failed_steps > 0, 2, 1), j.completed_steps, j.failed_steps, j.expected_steps
FROM {moved} AS s
STRAIGHT_JOIN {join} AS j FORCE INDEX (PRIMARY) ON j.join_id = s.join_id
WHERE j.status = 0 AND j.completed_steps + j.failed_steps = j.expected_steps;

UPDATE {moved} AS s
STRAIGHT_JOIN {join} AS j FORCE INDEX (PRIMARY) ON j.join_id = s.join_id
STRAIGHT_JOIN {join+_wait} AS w FORCE INDEX (PRIMARY) ON w.join_id = j.join_id
STRAIGHT_JOIN {outbox} AS o FORCE INDEX (PRIMARY) ON o.id = w.message_id
SET o.next_attempt_at = {now}
WHERE j.status = 0 AND j.completed_steps + j.failed_steps = j.expected_steps;

UPDATE {moved} AS s
STRAIGHT_JOIN {join} AS j FORCE INDEX (PRIMARY) ON j.join_id = s.join_id
SET j.status = IF(j.failed_steps > 0, 2, 1)
WHERE j.status = 0 AND j.completed_steps + j.failed_steps = j.expected_steps;

UPDATE {settled} AS g
STRAIGHT_JOIN {join_member} AS m FORCE INDEX (PRIMARY) ON m.message_id = g.message_id {in_join}
SET m.status = {step}
WHERE @postroom_counted > 0 AND m.status = 8 + {step};
