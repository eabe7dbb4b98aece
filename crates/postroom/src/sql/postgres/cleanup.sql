-- Done messages older than $1 microseconds, or processed before $2 (microseconds since 1970), at
-- most $3 rows in this transaction.
SELECT {queue+_cleanup}(
    coalesce('epoch'::timestamptz + $2::bigint * interval '1 microsecond',
             statement_timestamp() - $1::bigint * interval '1 microsecond'),
    $3::bigint::integer)
