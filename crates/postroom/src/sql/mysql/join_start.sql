-- ?1 join id, ?2 grouping key, ?3 expected steps, ?4 metadata. Its steps refer to the row in the table of
-- keys: see the migration. A text is taken as the bytes that it is, as in enqueue.sql.
INSERT INTO {join} (join_id, grouping_key, expected_steps, metadata, created_at, last_updated_at)
VALUES (?1, ?2, ?3, CONVERT(CAST(?4 AS BINARY) USING utf8mb4), {now}, {now});

INSERT INTO {join+_key} (join_id)
VALUES (?1)
