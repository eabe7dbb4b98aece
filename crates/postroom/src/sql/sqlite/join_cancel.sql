-- ?1 join id. Returns 1 cancelled, 0 it had finished before, -1 unknown; wakes its wait messages.
SELECT coalesce((SELECT status = 0 FROM {join} WHERE join_id = ?1), -1);

UPDATE {join}
SET status = 3, last_updated_at = {now}
WHERE join_id = ?1 AND status = 0;

-- if-changed
UPDATE {outbox}
SET next_attempt_at = {now}
WHERE id IN (SELECT message_id FROM {join+_wait} WHERE join_id = ?1)
