-- Ready, in flight, done and dead, as one row of four numbers.
SELECT
    (SELECT COUNT_BIG(*) FROM {queue} AS q WHERE {live} AND (q.LockedUntil IS NULL OR q.LockedUntil < SYSUTCDATETIME())) AS Ready,
    (SELECT COUNT_BIG(*) FROM {queue} AS q WHERE {live} AND q.LockedUntil >= SYSUTCDATETIME()) AS InFlight,
    (SELECT COUNT_BIG(*) FROM {queue} AS q WHERE {kept}) AS Done,
    (SELECT COUNT_BIG(*) FROM {queue} AS q WHERE {dead}) AS Dead
