-- $1 work item id.
SELECT {shown}
FROM {queue+_all} AS q
{with_seen}
WHERE q.id = $1::uuid
