-- How long until the next message that nobody holds is ready, in microseconds: zero or less when one is
-- ready now, NULL when none waits. For tests only: see testing.rs.
SELECT MIN(next_attempt_at) - {now}
FROM {queue}
WHERE locked_until IS NULL OR locked_until < {now}
