-- $1 source, $2 message id, $3 state, $4 worker. Returns 0 unknown, 1 moved, 2 left as it was.
SELECT {inbox+_mark}($1::text, $2::text, $3::bigint::smallint, $4::text)
