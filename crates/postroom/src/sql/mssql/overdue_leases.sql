-- How many leases ended more than @P1 microseconds ago and were neither settled nor taken over, and for
-- how many microseconds the oldest of them has been over, or NULL.
SELECT COUNT_BIG(*) AS Leases, DATEDIFF_BIG(MICROSECOND, MIN(q.LockedUntil), SYSUTCDATETIME()) AS Oldest
FROM {queue} AS q
WHERE {live} AND q.LockedUntil < {first_ago}
