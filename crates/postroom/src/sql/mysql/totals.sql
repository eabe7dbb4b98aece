-- Enqueued, done, died and received, as one row. Done and dead rows are numbered as they come, and a
-- cleanup takes the oldest: the highest number is a counter, until a table has been emptied. What was
-- enqueued is done, dead, or still there.
SELECT
    (SELECT COUNT(*) FROM {outbox})
        + (SELECT COALESCE(MAX(seq), 0) FROM {outbox+_done}) + (SELECT COALESCE(MAX(seq), 0) FROM {outbox+_dead}),
    (SELECT COALESCE(MAX(seq), 0) FROM {outbox+_done}) + (SELECT COALESCE(MAX(seq), 0) FROM {inbox+_done}),
    (SELECT COALESCE(MAX(seq), 0) FROM {outbox+_dead}) + (SELECT COALESCE(MAX(seq), 0) FROM {inbox+_dead}),
    (SELECT COUNT(*) FROM {inbox})
        + (SELECT COALESCE(MAX(seq), 0) FROM {inbox+_done}) + (SELECT COALESCE(MAX(seq), 0) FROM {inbox+_dead})
