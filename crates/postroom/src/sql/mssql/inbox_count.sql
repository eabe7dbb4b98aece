-- Seen, processing, done and dead, as one row of four numbers.
SELECT COUNT_BIG(CASE WHEN i.Status = 'Seen' THEN 1 END) AS Seen,
       COUNT_BIG(CASE WHEN i.Status = 'Processing' THEN 1 END) AS Processing,
       COUNT_BIG(CASE WHEN i.Status = 'Done' THEN 1 END) AS Done,
       COUNT_BIG(CASE WHEN i.Status = 'Dead' THEN 1 END) AS Dead
FROM {inbox} AS i
