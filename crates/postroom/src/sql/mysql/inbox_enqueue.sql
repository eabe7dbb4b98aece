-- Takes an inbound message in, once per (source ?2, message id ?3). The outcome is in the rows that
-- each statement changed, so that a caller's transaction learns it without decoding a row. Each of them
-- really changes the rows that it finds, because a client may want only those counted. The payload is sent
-- once, though several statements may need it, and a text is taken as the bytes that it is, as in
-- enqueue.sql; the counts that tell are those of the last six:
SET @postroom_payload = CONVERT(CAST(?5 AS BINARY) USING utf8mb4);

-- 1. remembers the arrival and locks it; until the last statement, 8 marks one that is the first
INSERT INTO {inbox+_seen} (source, message_id, first_seen, last_seen, hash, state)
VALUES (?2, ?3, {now}, {now}, ?6, 8)
ON DUPLICATE KEY UPDATE state = state;

-- 2. the hash differs (rows: 1) or not
UPDATE {inbox+_seen}
SET last_seen = GREATEST({now}, last_seen + 1)
WHERE message_id = ?3 AND source = ?2 AND hash <> ?6;

-- 3. new
INSERT INTO {inbox} (id, source, message_id, topic, payload, correlation_id, headers, due_time, created_at, next_attempt_at)
SELECT ?1, source, message_id, ?4, @postroom_payload, ?8, CONVERT(CAST(?9 AS BINARY) USING utf8mb4), ?7, first_seen, GREATEST(COALESCE(?7, 0), {now})
FROM {inbox+_seen}
WHERE message_id = ?3 AND source = ?2 AND state IN (0, 1, 8);

-- 4. it was waiting or being processed: the content is replaced, lease and backoff stay
UPDATE {inbox+_seen} AS s
STRAIGHT_JOIN {inbox} AS q FORCE INDEX (PRIMARY) ON q.id = s.work_id
SET q.topic = ?4, q.payload = @postroom_payload, q.correlation_id = ?8, q.headers = CONVERT(CAST(?9 AS BINARY) USING utf8mb4), q.due_time = ?7,
    q.next_attempt_at = GREATEST(COALESCE(?7, 0), COALESCE(q.backoff_until, 0), q.created_at),
    q.revision = q.revision + 1
WHERE s.message_id = ?3 AND s.source = ?2 AND s.state = 2;

-- 5. it is dead: the content is replaced, and it stays dead
UPDATE {inbox+_seen} AS s
STRAIGHT_JOIN {inbox+_dead} AS d FORCE INDEX (PRIMARY) ON d.id = s.work_id
SET d.topic = ?4, d.payload = @postroom_payload, d.correlation_id = ?8, d.headers = CONVERT(CAST(?9 AS BINARY) USING utf8mb4), d.due_time = ?7,
    d.revision = d.revision + 1
WHERE s.message_id = ?3 AND s.source = ?2 AND s.state = 2;

-- 6. the hash follows the content; a done message keeps its own. Assignments run from left to right here,
-- so the state comes last.
UPDATE {inbox+_seen}
SET last_seen = IF(state = 8, last_seen, {now}),
    hash = CASE
        WHEN state IN (0, 1, 8) THEN ?6
        WHEN state = 2 AND (EXISTS (SELECT 1 FROM {inbox} AS q WHERE q.id = work_id)
            OR EXISTS (SELECT 1 FROM {inbox+_dead} AS d WHERE d.id = work_id)) THEN ?6
        ELSE hash END,
    work_id = IF(state IN (0, 1, 8), ?1, work_id),
    state = IF(state IN (0, 1, 8), 2, state)
WHERE message_id = ?3 AND source = ?2
