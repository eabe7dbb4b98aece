-- How many leases ended more than $1 microseconds ago and were neither settled nor taken over, and for
-- how many microseconds the oldest of them has been over, or NULL.
SELECT count(*), CAST(extract(epoch FROM statement_timestamp() - min(locked_until)) * 1000000 AS bigint)
FROM {queue}
WHERE locked_until < statement_timestamp() - $1::bigint * interval '1 microsecond'
