-- Per topic: ready, in flight, waiting and dead messages, and for how many microseconds the oldest ready
-- one has been due, or NULL. One pass over the live table and one over the dead; the archive is not
-- touched. A message that was marked dead before it had a topic is in none.
SELECT topic, SUM(ready), SUM(in_flight), SUM(waiting), SUM(dead), {now} - MIN(ready_since)
FROM (
    SELECT topic,
           SUM(due AND NOT leased) AS ready,
           SUM(leased) AS in_flight,
           SUM(NOT due AND NOT leased) AS waiting,
           0 AS dead,
           MIN(IF(due AND NOT leased, next_attempt_at, NULL)) AS ready_since
    FROM (
        SELECT topic, next_attempt_at,
               next_attempt_at <= {now} AS due,
               locked_until IS NOT NULL AND locked_until >= {now} AS leased
        FROM {queue}) AS live
    GROUP BY topic
    UNION ALL
    SELECT topic, 0, 0, 0, COUNT(*), NULL
    FROM {queue+_dead}
    WHERE topic IS NOT NULL
    GROUP BY topic) AS counted
GROUP BY topic
ORDER BY topic
