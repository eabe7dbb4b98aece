-- ?1 join id, ?2 message id. Makes the message a step of the join; counters are left alone.
-- Returns the state of the message (0 pending, 1 done, 2 dead, 3 unknown) and the status of the
-- join; no row when the join is unknown.
-- It locks the message's row first, wherever it is: it comes either before an ack, which then counts the
-- new member, or after it, and says so; and a cleanup or purge does not take the row away meanwhile.
-- What is locked is also counted: MariaDB leaves out a table of an outer join that nothing is read from, and
-- does not lock it then.
SELECT COUNT(l.live) + COUNT(l.dead) + COUNT(l.done) INTO @postroom_locked
FROM (
    SELECT o.id AS live, d.id AS dead, e.id AS done
    FROM (SELECT ?2 AS id) AS m
    LEFT JOIN {outbox} AS o ON o.id = m.id
    LEFT JOIN {outbox+_dead} AS d ON d.id = m.id
    LEFT JOIN {outbox+_done} AS e ON e.id = m.id
    FOR UPDATE) AS l;

SELECT COUNT(l.live) + COUNT(l.dead) + COUNT(l.done) INTO @postroom_locked
FROM (
    SELECT o.id AS live, d.id AS dead, e.id AS done
    FROM (SELECT ?2 AS id) AS m
    LEFT JOIN {outbox} AS o ON o.message_id = m.id
    LEFT JOIN {outbox+_dead} AS d ON d.message_id = m.id
    LEFT JOIN {outbox+_done} AS e ON e.message_id = m.id
    FOR UPDATE) AS l;

INSERT INTO {join_member} (message_id, join_id, created_at)
SELECT ?2, j.join_id, {now}
FROM {join} AS j
WHERE j.join_id = ?1
ON DUPLICATE KEY UPDATE status = {join_member}.status;

SELECT {message_state}, j.status
FROM {join} AS j
JOIN (SELECT ?2 AS message_id) AS m
WHERE j.join_id = ?1
