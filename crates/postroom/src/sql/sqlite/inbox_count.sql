-- Seen, processing, done and dead, as one row of four numbers.
SELECT
    (SELECT count(*) FROM {inbox+_seen} WHERE state = 0),
    (SELECT count(*) FROM {inbox}) + (SELECT count(*) FROM {inbox+_seen} WHERE state = 1),
    (SELECT count(*) FROM {inbox+_seen} WHERE state IN (2, 3))
        - (SELECT count(*) FROM {inbox}) - (SELECT count(*) FROM {inbox+_dead}),
    (SELECT count(*) FROM {inbox+_dead})
