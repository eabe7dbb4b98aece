-- Per topic, what a diagnosis wants to know: messages that are ready or were handed back; ready ones that
-- nobody has ever claimed, and for how many microseconds the oldest of these has been due, or NULL;
-- messages in flight.
SELECT topic,
       count(*) FILTER (WHERE NOT leased AND (due OR delivery_count > 0)),
       count(*) FILTER (WHERE due AND NOT leased AND delivery_count = 0),
       CAST(extract(epoch FROM statement_timestamp()
           - min(next_attempt_at) FILTER (WHERE due AND NOT leased AND delivery_count = 0)) * 1000000 AS bigint),
       count(*) FILTER (WHERE leased)
FROM (
    SELECT topic, delivery_count, next_attempt_at,
           next_attempt_at <= statement_timestamp() AS due,
           locked_until IS NOT NULL AND locked_until >= statement_timestamp() AS leased
    FROM {queue}) AS live
GROUP BY topic
ORDER BY topic
