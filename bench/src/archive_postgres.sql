-- A million messages that are done, in the store of schema "bench".
INSERT INTO bench.outbox_done (id, message_id, created_at, processed_at, attempt_count, deferral_count,
                               delivery_count, topic, processed_by, payload)
SELECT gen_random_uuid(), gen_random_uuid(), now(), now(), 0, 0, 1, 'bench.topic', 'bench', '{"text":"' || repeat('x', 189) || '"}'
FROM generate_series(1, 1000000);
