-- ?1 join id, ?2 grouping key, ?3 expected steps, ?4 metadata.
INSERT INTO {join} (join_id, grouping_key, expected_steps, metadata, created_at, last_updated_at)
VALUES (?1, ?2, ?3, ?4, {now}, {now})
