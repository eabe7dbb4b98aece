-- A part of ack, fail, report, reconcile and cleanup: counts the pending members among the settled
-- messages as steps. 8 + step marks the members that this call counts until it has counted them;
-- nobody else sees that mark, because it is gone when the transaction commits.
UPDATE {join_member}
SET status = 8 + {step}
WHERE status = 0 AND EXISTS (SELECT 1 FROM {join_member}) AND message_id IN {settled} {in_join};

-- if-changed
UPDATE {join} AS j
SET completed_steps = completed_steps
        + CASE WHEN {step} = 1 THEN min(s.n, expected_steps - completed_steps - failed_steps) ELSE 0 END,
    failed_steps = failed_steps
        + CASE WHEN {step} = 2 THEN min(s.n, expected_steps - completed_steps - failed_steps) ELSE 0 END,
    status = CASE
        WHEN completed_steps + failed_steps + s.n < expected_steps THEN 0
        WHEN failed_steps > 0 OR {step} = 2 THEN 2
        ELSE 1 END,
    last_updated_at = {now}
FROM (
    SELECT m.join_id, count(*) AS n
    FROM {join_member} AS m
    WHERE m.status = 8 + {step} AND m.message_id IN {settled}
    GROUP BY m.join_id) AS s
WHERE j.join_id = s.join_id AND j.status = 0
RETURNING NULL, join_id, status, completed_steps, failed_steps, expected_steps;

-- if-changed
UPDATE {outbox}
SET next_attempt_at = {now}
WHERE id IN (
    SELECT w.message_id
    FROM {join_member} AS m
    JOIN {join} AS j ON j.join_id = m.join_id AND j.status <> 0
    JOIN {join+_wait} AS w ON w.join_id = j.join_id
    WHERE m.status = 8 + {step} AND m.message_id IN {settled});

-- if-changed
UPDATE {join_member}
SET status = {step}
WHERE status = 8 + {step} AND message_id IN {settled};
