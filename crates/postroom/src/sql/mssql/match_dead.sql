-- The ids of dead messages that match, as in count_dead.sql; then the id after which they come, and at
-- most so many.
SELECT TOP ({matched_limit}) q.Id
FROM {queue} AS q
WHERE {died}
  AND q.IdOrder > {matched_after}
ORDER BY q.IdOrder
OPTION (RECOMPILE)
