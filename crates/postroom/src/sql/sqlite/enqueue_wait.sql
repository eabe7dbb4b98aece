-- A wait message and its entry in the wake-up table. No row of the first changes when the join is
-- unknown.
INSERT INTO {join+_wait} (join_id, message_id)
SELECT join_id, ?1
FROM {join}
WHERE join_id = ?5;

INSERT INTO {outbox} (id, message_id, topic, payload, headers, created_at, next_attempt_at)
VALUES (?1, ?1, ?2, ?3, ?4, {now}, {now})
