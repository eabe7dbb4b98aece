-- Ready, in flight, done and dead, as one row of four numbers.
SELECT
    (SELECT count(*) FROM {queue} WHERE locked_until IS NULL OR locked_until < {now} OR locked_from > {now}),
    (SELECT count(*) FROM {queue} WHERE locked_until >= {now} AND locked_from <= {now}),
    (SELECT count(*) FROM {queue+_done}),
    (SELECT count(*) FROM {queue+_dead})
