-- Entries, newest first: those before the id @P1 or NULL, about the subject @P2 or NULL, at most @P3.
SELECT TOP (@P3) a.Id, DATEDIFF_BIG(MICROSECOND, '19700101', a.RecordedAt) AS RecordedAt, a.Actor, a.Action, a.Subject,
       a.MessageCount, a.Detail
FROM {outbox+Audit} AS a
WHERE a.Id < COALESCE(@P1, 9223372036854775807)
  AND (@P2 IS NULL OR a.SubjectHash = CAST(HASHBYTES('SHA2_256', CAST(@P2 AS varbinary(2400))) AS binary(32)))
ORDER BY a.Id DESC
OPTION (RECOMPILE)
