-- Who keeps the server from removing dead rows, oldest first: what it is, its process id or NULL, its
-- state or name, for how many microseconds or NULL, and over how many transactions. The text of a query
-- is not looked at. Other people's sessions show their state only to those who may read all statistics.
SELECT what, pid, state, CAST(extract(epoch FROM clock_timestamp() - since) * 1000000 AS bigint), transactions
FROM (
    SELECT 'session' AS what, pid::bigint AS pid, coalesce(state, 'in an unknown state') AS state, xact_start AS since,
           greatest(age(backend_xmin), age(backend_xid))::bigint AS transactions
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
      AND datname = current_database()
      AND pid <> pg_backend_pid()
      AND backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT 'prepared transaction', NULL, gid, prepared, age(transaction)::bigint
    FROM pg_prepared_xacts
    WHERE database = current_database()
    UNION ALL
    SELECT 'replication slot', active_pid::bigint, slot_name::text, NULL, age(xmin)::bigint
    FROM pg_replication_slots
    WHERE xmin IS NOT NULL) AS holder
ORDER BY since NULLS LAST
