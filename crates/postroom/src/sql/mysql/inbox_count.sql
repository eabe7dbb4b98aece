-- Seen, processing, done and dead, as one row of four numbers.
SELECT
    (SELECT COUNT(*) FROM {inbox+_seen} WHERE state = 0),
    (SELECT COUNT(*) FROM {inbox}) + (SELECT COUNT(*) FROM {inbox+_seen} WHERE state = 1),
    (SELECT COUNT(*) FROM {inbox+_seen} WHERE state IN (2, 3))
        - (SELECT COUNT(*) FROM {inbox}) - (SELECT COUNT(*) FROM {inbox+_dead}),
    (SELECT COUNT(*) FROM {inbox+_dead})
