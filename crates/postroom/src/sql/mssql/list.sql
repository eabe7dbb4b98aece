-- One page of messages, in the order of their ids. @P1 statuses; @P2 topic, @P3 correlation id, @P4 enqueued
-- at least so many microseconds ago, @P5 less than so many, each or NULL; ids from @P6 to @P7; inbox only:
-- @P8 source or NULL; then the limit; inbox only: @P10 whether to include those that were never enqueued, and
-- after which of them, or NULL: @P11 first seen, @P12 source, @P13 message id.
--
-- Live, done and dead messages are asked for a page each, so that the few are not looked for among the many.
-- Trailing blanks make another text, which SQL Server sees only by the number of bytes.
SELECT TOP ({limit}) {listed_columns}
FROM (
    SELECT *
    FROM (
        SELECT TOP ({limit}) q.*, {code} AS Code
        FROM {queue} AS q
        WHERE {live}
          AND {asked}
          AND {listed}
        ORDER BY q.IdOrder {direction}) AS live
    UNION ALL
    SELECT *
    FROM (
        SELECT TOP ({limit}) q.*, {code} AS Code
        FROM {queue} AS q
        WHERE {kept}
          AND {asked}
          AND {listed}
        ORDER BY q.IdOrder {direction}) AS done
    UNION ALL
    SELECT *
    FROM (
        SELECT TOP ({limit}) q.*, {code} AS Code
        FROM {queue} AS q
        WHERE {dead}
          AND {asked}
          AND {listed}
        ORDER BY q.IdOrder {direction}) AS dead
    {listed_unqueued}) AS q
ORDER BY q.IdOrder {direction}, {then_by}
OPTION (RECOMPILE)
