-- ?1 ids of dead messages as JSON. They are ready again, with a fresh budget of attempts.
INSERT INTO {queue} ({columns}, next_attempt_at)
SELECT {columns_fresh}, max(coalesce(due_time, 0), {now})
FROM {queue+_dead}
WHERE topic IS NOT NULL AND id IN {dead_ids};

{revive_seen}

DELETE FROM {queue+_dead}
WHERE id IN {dead_ids}
RETURNING id;

{unlink_revived}
