-- Makes message ?1 a step of join ?2. One row changed, also when it is one already; none when the join
-- is unknown.
INSERT INTO {join_member} (message_id, join_id, created_at)
SELECT ?1, join_id, {now}
FROM {join}
WHERE join_id = ?2
ON CONFLICT DO UPDATE SET status = status
