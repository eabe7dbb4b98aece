-- ?1 join id, ?2 message id. Makes the message a step of the join; counters are left alone.
-- Returns the state of the message (0 pending, 1 done, 2 dead, 3 unknown) and the status of the
-- join; no row when the join is unknown.
INSERT INTO {join_member} (message_id, join_id, created_at)
SELECT ?2, join_id, {now}
FROM {join}
WHERE join_id = ?1
ON CONFLICT DO NOTHING;

SELECT {message_state}, j.status
FROM {join} AS j
JOIN (SELECT ?2 AS message_id) AS m
WHERE j.join_id = ?1
