-- Per topic, what a diagnosis wants to know: messages that are ready or were handed back; ready ones that
-- nobody has ever claimed, and for how many microseconds the oldest of these has been due, or NULL;
-- messages in flight.
SELECT topic,
       SUM(NOT leased AND (due OR delivery_count > 0)),
       SUM(due AND NOT leased AND delivery_count = 0),
       {now} - MIN(IF(due AND NOT leased AND delivery_count = 0, next_attempt_at, NULL)),
       SUM(leased)
FROM (
    SELECT topic, delivery_count, next_attempt_at,
           next_attempt_at <= {now} AS due,
           locked_until IS NOT NULL AND locked_until >= {now} AS leased
    FROM {queue}) AS live
GROUP BY topic
ORDER BY topic
