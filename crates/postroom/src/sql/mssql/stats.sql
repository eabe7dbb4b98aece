-- How full a queue is, as one row: ready, in flight, scheduled, retrying, dead, and for how many
-- microseconds the oldest ready message has been due, or NULL. The first four leave no live message
-- out and count none twice. One pass over the live messages; done ones are not touched. A message
-- that was handed back without an error is scheduled, not retrying.
SELECT COUNT_BIG(CASE WHEN live.Due = 1 AND live.Leased = 0 THEN 1 END) AS Ready,
       COUNT_BIG(CASE WHEN live.Leased = 1 THEN 1 END) AS InFlight,
       COUNT_BIG(CASE WHEN live.Due = 0 AND live.Leased = 0 AND live.Failed = 0 THEN 1 END) AS Scheduled,
       COUNT_BIG(CASE WHEN live.Due = 0 AND live.Leased = 0 AND live.Failed = 1 THEN 1 END) AS Retrying,
       (SELECT COUNT_BIG(*) FROM {queue} AS q WHERE {dead}) AS Dead,
       DATEDIFF_BIG(MICROSECOND, MIN(CASE WHEN live.Due = 1 AND live.Leased = 0 THEN live.NextAttemptAt END), SYSUTCDATETIME()) AS OldestReady
FROM (
    SELECT q.NextAttemptAt,
           CASE WHEN q.NextAttemptAt <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS Due,
           CASE WHEN q.LockedUntil >= SYSUTCDATETIME() THEN 1 ELSE 0 END AS Leased,
           CASE WHEN q.{attempts} > q.DeferralCount OR (q.{attempts} > 0 AND q.LastError IS NOT NULL) THEN 1 ELSE 0 END AS Failed
    FROM {queue} AS q
    WHERE {live}) AS live
