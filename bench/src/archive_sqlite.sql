-- A million messages that are done.
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
INSERT INTO outbox_done (id, message_id, created_at, processed_at, attempt_count, deferral_count,
                         delivery_count, topic, processed_by, payload)
SELECT randomblob(16), randomblob(16), i, i, 0, 0, 1, 'bench.topic', 'bench', printf('%0200d', i) FROM n;
PRAGMA wal_checkpoint(TRUNCATE);
