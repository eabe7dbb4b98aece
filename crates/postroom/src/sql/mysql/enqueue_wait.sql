-- A wait message and its entry in the wake-up table. An unknown join is a foreign key violation.
INSERT INTO {join+_wait} (join_id, message_id)
VALUES (?5, ?1);

INSERT INTO {outbox} (id, message_id, topic, payload, headers, created_at, next_attempt_at)
VALUES (?1, ?1, ?2, ?3, ?4, {now}, {now})
