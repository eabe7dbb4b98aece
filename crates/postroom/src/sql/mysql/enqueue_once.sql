-- One message under the key ?1, with the hash ?2. ?9 is the due time in microseconds since 1970, or
-- NULL; ?10 the joins as JSON. Returns work item, message, and 0 new, 1 there before, 2 there with
-- another hash. Who comes second waits for the first to commit, and then finds its message.
INSERT IGNORE INTO {outbox+_key} (`key`, hash, id, message_id, created_at)
VALUES (?1, ?2, ?3, ?4, {now});

SET @postroom_new = ROW_COUNT();

INSERT INTO {outbox} (id, message_id, topic, payload, headers, correlation_id, due_time, created_at, next_attempt_at)
SELECT ?3, ?4, ?5, ?6, ?7, ?8, ?9, {now}, GREATEST(COALESCE(?9, 0), {now})
FROM (SELECT 1 AS one) AS one
WHERE @postroom_new > 0;

INSERT INTO {join_member} (message_id, join_id, created_at)
SELECT DISTINCT ?4, UNHEX(j.id), {now}
FROM JSON_TABLE(?10, '$[*]' COLUMNS (id CHAR(32) PATH '$')) AS j
WHERE @postroom_new > 0
ON DUPLICATE KEY UPDATE status = {join_member}.status;

SELECT id, message_id, CASE WHEN hash <> ?2 THEN 2 WHEN @postroom_new > 0 THEN 0 ELSE 1 END
FROM {outbox+_key}
WHERE `key` = ?1
