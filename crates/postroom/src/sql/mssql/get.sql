-- @P1 work item id. An id that was enqueued anew may be there twice: the live one counts.
SELECT TOP (1) {shown}
FROM {queue} AS q
WHERE q.IdOrder = {wanted_id}
ORDER BY {code}, q.Sequence DESC
