-- How full a queue is, as one row: ready, in flight, scheduled, retrying, dead, and for how many
-- microseconds the oldest ready message has been due, or NULL. The first four leave no live message
-- out and count none twice. One pass over the live table; the archive is not touched. A message
-- that was handed back without an error is scheduled, not retrying.
SELECT
    COALESCE(SUM(due AND NOT leased), 0),
    COALESCE(SUM(leased), 0),
    COALESCE(SUM(NOT due AND NOT leased AND NOT failed), 0),
    COALESCE(SUM(NOT due AND NOT leased AND failed), 0),
    (SELECT COUNT(*) FROM {queue+_dead}),
    {now} - MIN(IF(due AND NOT leased, next_attempt_at, NULL))
FROM (
    SELECT
        next_attempt_at,
        next_attempt_at <= {now} AS due,
        locked_until IS NOT NULL AND locked_until >= {now} AS leased,
        attempt_count > deferral_count OR (attempt_count > 0 AND last_error IS NOT NULL) AS failed
    FROM {queue}) AS live
