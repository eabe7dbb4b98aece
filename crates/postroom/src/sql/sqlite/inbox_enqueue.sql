-- Takes an inbound message in, once per (source ?2, message id ?3). The outcome is in the rows that
-- each statement changed, so that a caller's transaction learns it without decoding a row:
-- 1. remembers the arrival; until the last statement, 8 marks one that is the first
INSERT INTO {inbox+_seen} (source, message_id, first_seen, last_seen, hash, state)
VALUES (?2, ?3, {now}, {now}, ?6, 8)
ON CONFLICT (message_id, source) DO NOTHING;

-- 2. the hash differs (rows: 1) or not
UPDATE {inbox+_seen}
SET last_seen = {now}
WHERE message_id = ?3 AND source = ?2 AND hash <> ?6;

-- 3. new
INSERT INTO {inbox} (id, source, message_id, topic, payload, correlation_id, headers, due_time, created_at, next_attempt_at)
SELECT ?1, source, message_id, ?4, ?5, ?8, ?9, ?7, first_seen, max(coalesce(?7, 0), {now})
FROM {inbox+_seen}
WHERE message_id = ?3 AND source = ?2 AND state IN (0, 1, 8);

-- 4. it was waiting or being processed: the content is replaced, lease and backoff stay
UPDATE {inbox}
SET topic = ?4, payload = ?5, correlation_id = ?8, headers = ?9, due_time = ?7,
    next_attempt_at = max(coalesce(?7, 0), coalesce(backoff_until, 0), created_at)
WHERE id = (SELECT work_id FROM {inbox+_seen} WHERE message_id = ?3 AND source = ?2 AND state = 2);

-- 5. it is dead: the content is replaced, and it stays dead
UPDATE {inbox+_dead}
SET topic = ?4, payload = ?5, correlation_id = ?8, headers = ?9, due_time = ?7
WHERE id = (SELECT work_id FROM {inbox+_seen} WHERE message_id = ?3 AND source = ?2 AND state = 2);

-- 6. the hash follows the content; a done message keeps its own
UPDATE {inbox+_seen}
SET last_seen = CASE WHEN state = 8 THEN last_seen ELSE {now} END,
    hash = CASE
        WHEN state IN (0, 1, 8) THEN ?6
        WHEN state = 2 AND (work_id IN (SELECT id FROM {inbox}) OR work_id IN (SELECT id FROM {inbox+_dead})) THEN ?6
        ELSE hash END,
    work_id = CASE WHEN state IN (0, 1, 8) THEN ?1 ELSE work_id END,
    state = CASE WHEN state IN (0, 1, 8) THEN 2 ELSE state END
WHERE message_id = ?3 AND source = ?2
