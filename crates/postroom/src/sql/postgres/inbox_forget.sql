-- Done messages last seen longer than $1 microseconds ago, at most $2.
SELECT {inbox+_forget}(statement_timestamp() - $1::bigint * interval '1 microsecond', $2::bigint::integer)
