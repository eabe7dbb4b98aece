-- A wait message and its entry in the wake-up table. An unknown join is a foreign key violation.
WITH waits AS (
    INSERT INTO {join+_wait} (join_id, message_id) VALUES ($5::uuid, $1::uuid))
INSERT INTO {outbox} (id, message_id, topic, payload, headers)
VALUES ($1::uuid, $1::uuid, $2::text, $3::text, $4::text)
