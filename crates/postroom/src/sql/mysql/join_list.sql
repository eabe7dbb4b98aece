-- ?1 grouping key, ?2 list what follows this join id or NULL, ?3 at most so many.
SELECT join_id, grouping_key, expected_steps, completed_steps, failed_steps, status,
       created_at, last_updated_at, metadata
FROM {join}
WHERE grouping_key = ?1 AND (?2 IS NULL OR join_id > ?2)
ORDER BY join_id
LIMIT ?3
