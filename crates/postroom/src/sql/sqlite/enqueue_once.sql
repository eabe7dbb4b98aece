-- One message under the key ?1, with the hash ?2. ?9 is the due time in microseconds since 1970, or
-- NULL; ?10 the joins as JSON. Returns work item, message, and 0 new, 1 there before, 2 there with
-- another hash. The message is the last to be inserted: its change tells the last statement that the
-- key was new.
INSERT INTO {outbox+_key} (key, hash, id, message_id, created_at)
VALUES (?1, ?2, ?3, ?4, {now})
ON CONFLICT (key) DO NOTHING;

-- if-changed
INSERT INTO {join_member} (message_id, join_id, created_at)
SELECT DISTINCT ?4, unhex(value), {now}
FROM json_each(?10)
WHERE true
ON CONFLICT DO NOTHING;

-- if-changed
INSERT INTO {outbox} (id, message_id, topic, payload, headers, correlation_id, due_time, created_at, next_attempt_at)
VALUES (?3, ?4, ?5, ?6, ?7, ?8, ?9, {now}, max(coalesce(?9, 0), {now}));

SELECT id, message_id, CASE WHEN hash <> ?2 THEN 2 WHEN changes() = 0 THEN 1 ELSE 0 END
FROM {outbox+_key}
WHERE key = ?1
