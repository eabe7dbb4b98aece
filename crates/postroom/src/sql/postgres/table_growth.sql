-- Of the tables $1: name, live rows, dead rows, and for how many microseconds no vacuum has come, or NULL.
SELECT relname::text, n_live_tup, n_dead_tup,
       CAST(extract(epoch FROM clock_timestamp() - greatest(last_vacuum, last_autovacuum)) * 1000000 AS bigint)
FROM pg_stat_user_tables
WHERE relid IN (SELECT to_regclass(n) FROM unnest($1::text[]) AS n)
ORDER BY n_dead_tup DESC
