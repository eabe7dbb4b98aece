-- Ready, in flight, done and dead, as one row of four numbers.
SELECT
    (SELECT count(*) FROM {queue} WHERE locked_until IS NULL OR locked_until < statement_timestamp()),
    (SELECT count(*) FROM {queue} WHERE locked_until >= statement_timestamp()),
    (SELECT count(*) FROM {queue+_done}),
    (SELECT count(*) FROM {queue+_dead})
