-- Per topic: ready, in flight, waiting and dead messages, and for how many microseconds the oldest ready
-- one has been due, or NULL. One pass over live and dead messages; done ones are not touched. A message that
-- was marked dead before it had a topic is in none. Topics that differ in trailing blanks are two.
SELECT counted.Topic,
       COUNT_BIG(CASE WHEN counted.Live = 1 AND counted.Due = 1 AND counted.Leased = 0 THEN 1 END) AS Ready,
       COUNT_BIG(CASE WHEN counted.Live = 1 AND counted.Leased = 1 THEN 1 END) AS InFlight,
       COUNT_BIG(CASE WHEN counted.Live = 1 AND counted.Due = 0 AND counted.Leased = 0 THEN 1 END) AS Waiting,
       COUNT_BIG(CASE WHEN counted.Live = 0 THEN 1 END) AS Dead,
       DATEDIFF_BIG(MICROSECOND, MIN(CASE WHEN counted.Live = 1 AND counted.Due = 1 AND counted.Leased = 0 THEN counted.NextAttemptAt END), SYSUTCDATETIME()) AS OldestReady
FROM (
    SELECT q.Topic, q.NextAttemptAt, 1 AS Live,
           CASE WHEN q.NextAttemptAt <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS Due,
           CASE WHEN q.LockedUntil >= SYSUTCDATETIME() THEN 1 ELSE 0 END AS Leased
    FROM {queue} AS q
    WHERE {live}
    UNION ALL
    SELECT q.Topic, q.NextAttemptAt, 0, 0, 0
    FROM {queue} AS q
    WHERE {dead} AND q.Topic IS NOT NULL) AS counted
GROUP BY counted.Topic, DATALENGTH(counted.Topic)
ORDER BY counted.Topic, DATALENGTH(counted.Topic)
