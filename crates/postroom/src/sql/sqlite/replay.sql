-- ?1 ids of dead messages as JSON. They are ready again, with a fresh budget of attempts, unless the
-- same id has been enqueued anew and is live. Returns the ids that changed.
DELETE FROM temp.postroom_chosen;

INSERT INTO temp.postroom_chosen (seq, message_id)
SELECT d.seq, d.message_id
FROM {queue+_dead} AS d
WHERE d.id IN {dead_ids} AND NOT EXISTS (SELECT 1 FROM {queue} AS q WHERE q.id = d.id);

INSERT INTO {queue} ({columns}, next_attempt_at)
SELECT {columns_fresh}, max(coalesce(due_time, 0), {now})
FROM {queue+_dead}
WHERE topic IS NOT NULL AND seq IN (SELECT seq FROM temp.postroom_chosen);

{revive_seen}

DELETE FROM {queue+_dead}
WHERE seq IN (SELECT seq FROM temp.postroom_chosen)
RETURNING id
