-- How many leases ended more than ?1 microseconds ago and were neither settled nor taken over, and for
-- how many microseconds the oldest of them has been over, or NULL.
SELECT COUNT(*), {now} - MIN(locked_until)
FROM {queue}
WHERE locked_until < {now} - ?1
