-- How long until the next message that nobody holds is ready, in microseconds: zero or less when one is
-- ready now, NULL when none waits. For tests only: see testing.rs.
SELECT DATEDIFF_BIG(MICROSECOND, SYSUTCDATETIME(), MIN(q.NextAttemptAt)) AS NextReady
FROM {queue} AS q
WHERE {live} AND (q.LockedUntil IS NULL OR q.LockedUntil < SYSUTCDATETIME())
