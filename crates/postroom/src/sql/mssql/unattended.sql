-- Per topic, what a diagnosis wants to know: messages that are ready or were handed back; ready ones that
-- nobody has ever claimed, and for how many microseconds the oldest of these has been due, or NULL;
-- messages in flight.
SELECT live.Topic,
       COUNT_BIG(CASE WHEN live.Leased = 0 AND (live.Due = 1 OR live.DeliveryCount > 0) THEN 1 END) AS Waiting,
       COUNT_BIG(CASE WHEN live.Due = 1 AND live.Leased = 0 AND live.DeliveryCount = 0 THEN 1 END) AS NeverClaimed,
       DATEDIFF_BIG(MICROSECOND, MIN(CASE WHEN live.Due = 1 AND live.Leased = 0 AND live.DeliveryCount = 0 THEN live.NextAttemptAt END), SYSUTCDATETIME()) AS OldestNeverClaimed,
       COUNT_BIG(CASE WHEN live.Leased = 1 THEN 1 END) AS InFlight
FROM (
    SELECT q.Topic, q.DeliveryCount, q.NextAttemptAt,
           CASE WHEN q.NextAttemptAt <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS Due,
           CASE WHEN q.LockedUntil >= SYSUTCDATETIME() THEN 1 ELSE 0 END AS Leased
    FROM {queue} AS q
    WHERE {live}) AS live
GROUP BY live.Topic, DATALENGTH(live.Topic)
ORDER BY live.Topic, DATALENGTH(live.Topic)
