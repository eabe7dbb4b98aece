-- How long until the next message that nobody holds is ready, in microseconds: zero or less when one is
-- ready now, NULL when none waits. For tests only: see testing.rs.
SELECT CAST(extract(epoch FROM min(next_attempt_at) - statement_timestamp()) * 1000000 AS bigint)
FROM {queue}
WHERE locked_until IS NULL OR locked_until < statement_timestamp()
