-- $1 work item id.
SELECT {shown}
FROM {queue+_all} AS q
WHERE q.id = $1::uuid
