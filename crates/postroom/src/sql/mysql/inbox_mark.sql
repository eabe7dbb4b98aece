-- ?1 source, ?2 message id, ?3 state: 1 processing, 3 done, 4 dead, ?4 worker.
-- Done never changes; processing can only follow seen. Leases do not matter here.
-- Returns 0 unknown key, 1 moved, 2 left as it was. Locks, in this order: the seen row, the live row,
-- the dead row. Then comes the answer, from the state before. What is locked is also counted: MariaDB
-- leaves out a table of an outer join that nothing is read from, and does not lock it then.
SELECT COUNT(l.live) + COUNT(l.dead) INTO @postroom_locked
FROM (
    SELECT q.id AS live, d.id AS dead
    FROM {inbox+_seen} AS s
    LEFT JOIN {inbox} AS q ON q.id = s.work_id
    LEFT JOIN {inbox+_dead} AS d ON d.id = s.work_id
    WHERE s.message_id = ?2 AND s.source = ?1
    FOR UPDATE) AS l;

SELECT CASE
           WHEN s.state IN (0, 1) THEN IF(s.state = ?3, 2, 1)
           WHEN s.state = 3 OR ?3 = 1 THEN 2
           WHEN EXISTS (SELECT 1 FROM {inbox} AS q WHERE q.id = s.work_id) THEN 1
           WHEN ?3 = 3 AND EXISTS (SELECT 1 FROM {inbox+_dead} AS d WHERE d.id = s.work_id) THEN 1
           ELSE 2 END
FROM {inbox+_seen} AS s
WHERE s.message_id = ?2 AND s.source = ?1;

INSERT INTO {inbox+_done} ({inbox_columns}, processed_at, processed_by)
SELECT {inbox_columns}, {now}, ?4
FROM {inbox}
WHERE ?3 = 3 AND id = (SELECT s.work_id FROM {inbox+_seen} AS s WHERE s.message_id = ?2 AND s.source = ?1);

INSERT INTO {inbox+_done} ({inbox_columns}, processed_at, processed_by)
SELECT {inbox_columns}, {now}, ?4
FROM {inbox+_dead}
WHERE ?3 = 3 AND id = (SELECT s.work_id FROM {inbox+_seen} AS s WHERE s.message_id = ?2 AND s.source = ?1);

DELETE FROM {inbox+_dead}
WHERE ?3 = 3 AND id = (SELECT s.work_id FROM {inbox+_seen} AS s WHERE s.message_id = ?2 AND s.source = ?1);

INSERT INTO {inbox+_dead} ({inbox_columns}, processed_at, processed_by)
SELECT {inbox_columns}, {now}, ?4
FROM {inbox}
WHERE ?3 = 4 AND id = (SELECT s.work_id FROM {inbox+_seen} AS s WHERE s.message_id = ?2 AND s.source = ?1);

DELETE FROM {inbox}
WHERE ?3 IN (3, 4) AND id = (SELECT s.work_id FROM {inbox+_seen} AS s WHERE s.message_id = ?2 AND s.source = ?1);

UPDATE {inbox+_seen}
SET work_id = UNHEX(REPLACE(UUID(), '-', ''))
WHERE ?3 = 4 AND state IN (0, 1) AND message_id = ?2 AND source = ?1;

INSERT INTO {inbox+_dead} (id, source, message_id, created_at, processed_at, processed_by, attempt_count, deferral_count, delivery_count)
SELECT work_id, source, message_id, first_seen, {now}, ?4, 0, 0, 0
FROM {inbox+_seen}
WHERE ?3 = 4 AND state IN (0, 1) AND message_id = ?2 AND source = ?1;

UPDATE {inbox+_seen}
SET state = IF(?3 = 4, 2, ?3)
WHERE state IN (0, 1) AND message_id = ?2 AND source = ?1
