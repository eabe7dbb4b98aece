-- How full a queue is, as one row: ready, in flight, scheduled, retrying, dead, and for how many
-- microseconds the oldest ready message has been due, or NULL. The first four leave no live message
-- out and count none twice. One pass over the live table; the archive is not touched, nothing is
-- locked. A message that was handed back without an error is scheduled, not retrying.
SELECT
    count(*) FILTER (WHERE due AND NOT leased),
    count(*) FILTER (WHERE leased),
    count(*) FILTER (WHERE NOT due AND NOT leased AND NOT failed),
    count(*) FILTER (WHERE NOT due AND NOT leased AND failed),
    (SELECT count(*) FROM {queue+_dead}),
    CAST(
        extract(epoch FROM statement_timestamp() - min(next_attempt_at) FILTER (WHERE due AND NOT leased)) * 1000000
        AS bigint)
FROM (
    SELECT
        next_attempt_at,
        next_attempt_at <= statement_timestamp() AS due,
        locked_until IS NOT NULL AND locked_until >= statement_timestamp() AS leased,
        attempt_count > deferral_count OR (attempt_count > 0 AND last_error IS NOT NULL) AS failed
    FROM {queue}) AS live
