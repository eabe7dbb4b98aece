-- ?1 work item id. An id that was enqueued anew may be in two places: the live one counts.
SELECT {shown}
FROM {queue+_all} AS q
WHERE q.id = ?1
ORDER BY q.status
LIMIT 1
