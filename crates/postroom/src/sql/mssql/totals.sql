-- Enqueued, done, died and received, as one row. Rows are numbered as they come: the last number is a counter,
-- which numbers that were rolled back leave gaps in. What was enqueued and is neither live nor dead is done: so a
-- dead message that is purged moves from one number to the other.
SELECT o.Counted AS Enqueued,
       CASE WHEN o.Counted > o.Unfinished + o.Dead THEN o.Counted - o.Unfinished - o.Dead ELSE 0 END
           + CASE WHEN i.Counted > i.Unfinished + i.Dead THEN i.Counted - i.Unfinished - i.Dead ELSE 0 END AS Done,
       o.Dead + i.Dead AS Died,
       i.Counted AS Received
FROM (
    SELECT COALESCE((SELECT CAST(c.last_value AS bigint) FROM sys.identity_columns AS c WHERE c.object_id = OBJECT_ID(N'{outbox}')), 0) AS Counted,
           (SELECT COUNT_BIG(*) FROM {outbox} AS q WHERE q.Status < 2) AS Unfinished,
           (SELECT COUNT_BIG(*) FROM {outbox} AS q WHERE q.Status = 3) AS Dead) AS o
CROSS JOIN (
    SELECT COALESCE((SELECT CAST(c.last_value AS bigint) FROM sys.identity_columns AS c WHERE c.object_id = OBJECT_ID(N'{inbox}')), 0) AS Counted,
           (SELECT COUNT_BIG(*) FROM {inbox} AS q WHERE q.Status IN ('Seen', 'Processing')) AS Unfinished,
           (SELECT COUNT_BIG(*) FROM {inbox} AS q WHERE q.Status = 'Dead') AS Dead) AS i
