-- The ids of dead messages that match, as in count_dead.sql; then the id after which they come, and at
-- most so many.
SELECT id
FROM {queue+_dead}
WHERE {died}
  AND id > {matched_after}
ORDER BY id
LIMIT {matched_limit}
