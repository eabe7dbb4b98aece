-- $1 ids of dead messages, or NULL for those that died longer than $2 microseconds ago, at most $3.
SELECT {queue+_purge}({dead_ids}, statement_timestamp() - $2::bigint * interval '1 microsecond', $3::bigint::integer)
