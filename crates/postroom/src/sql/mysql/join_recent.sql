-- ?1 list what was started before this join id or NULL, ?2 at most so many. Newest first.
SELECT join_id, grouping_key, expected_steps, completed_steps, failed_steps, status,
       created_at, last_updated_at, metadata
FROM {join}
WHERE ?1 IS NULL OR join_id < ?1
ORDER BY join_id DESC
LIMIT ?2
