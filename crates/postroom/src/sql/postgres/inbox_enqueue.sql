-- The number of rows is the outcome, so that a caller's transaction learns it without decoding a
-- row: see the function for its meaning.
SELECT
FROM generate_series(1, {inbox+_enqueue}(
    $1::uuid, $2::text, $3::text, $4::text, $5::text, $6::bytea,
    'epoch'::timestamptz + $7::bigint * interval '1 microsecond', $8::text, $9::text))
