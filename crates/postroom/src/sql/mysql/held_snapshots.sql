-- Who keeps the server from removing old versions of rows, oldest first: what it is, the number of its connection
-- or NULL, its state or its number among transactions, for how many microseconds, and NULL. The text of a query is
-- not looked at. All databases of a server share one history, so everybody's transactions count.
-- Whoever asks needs the right PROCESS. The server's own times are local.
SELECT IF(t.trx_mysql_thread_id = 0, 'prepared transaction', 'session'),
       NULLIF(t.trx_mysql_thread_id, 0),
       IF(t.trx_mysql_thread_id = 0, t.trx_id, LOWER(COALESCE(p.command, t.trx_state))),
       TIMESTAMPDIFF(MICROSECOND, CONVERT_TZ(t.trx_started, 'SYSTEM', '+00:00'), UTC_TIMESTAMP(6)),
       NULL
FROM information_schema.innodb_trx AS t
LEFT JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
WHERE t.trx_mysql_thread_id <> CONNECTION_ID()
ORDER BY t.trx_started
