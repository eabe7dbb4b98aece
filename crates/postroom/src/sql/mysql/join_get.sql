-- ?1 join id.
SELECT join_id, grouping_key, expected_steps, completed_steps, failed_steps, status,
       created_at, last_updated_at, metadata
FROM {join}
WHERE join_id = ?1
