-- $1 join id, $2 grouping key, $3 expected steps, $4 metadata.
INSERT INTO {join} (join_id, grouping_key, expected_steps, metadata)
VALUES ($1::uuid, $2::text, $3::bigint::integer, $4::text)
