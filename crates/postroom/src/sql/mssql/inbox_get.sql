-- @P1 message id, @P2 source or NULL for any; at most two rows, to see whether a bare id is ambiguous.
-- Columns as in a claim, then when and by whom it was processed, and its status: 0 or 1 live,
-- 2 done, 3 dead, 4 seen, 5 marked processing.
SELECT TOP (2) {inbox_shown}
FROM {inbox} AS q
WHERE q.MessageId = @P1
  AND DATALENGTH(q.MessageId) = DATALENGTH(@P1)
  AND (@P2 IS NULL OR (q.Source = @P2 AND DATALENGTH(q.Source) = DATALENGTH(@P2)))
