-- Who has a transaction open in this database, oldest first: what it is, the number of its session, its state, for
-- how many microseconds, and NULL. The text of a query is not looked at. Whoever asks needs the right to view the
-- server's state. The server's own times are local.
SELECT N'session' AS What, CAST(s.session_id AS bigint) AS Session, x.status AS State,
       DATEDIFF_BIG(MICROSECOND, t.transaction_begin_time, SYSDATETIME()) AS Age, CAST(NULL AS bigint) AS Transactions
FROM sys.dm_tran_session_transactions AS s
JOIN sys.dm_tran_active_transactions AS t ON t.transaction_id = s.transaction_id
JOIN sys.dm_exec_sessions AS x ON x.session_id = s.session_id
WHERE s.session_id <> @@SPID
  AND EXISTS (
    SELECT 1
    FROM sys.dm_tran_database_transactions AS d
    WHERE d.transaction_id = s.transaction_id AND d.database_id = DB_ID())
ORDER BY t.transaction_begin_time
