-- Ready, in flight, done and dead, as one row of four numbers.
SELECT
    (SELECT COUNT(*) FROM {queue} WHERE locked_until IS NULL OR locked_until < {now}),
    (SELECT COUNT(*) FROM {queue} WHERE locked_until >= {now}),
    (SELECT COUNT(*) FROM {queue+_done}),
    (SELECT COUNT(*) FROM {queue+_dead})
