-- ?1 owner, ?2 ids as JSON. Hands messages back as if they had never been claimed.
{resolve}SELECT q.id
FROM {held}
FOR UPDATE;

UPDATE {id_rows} AS s
STRAIGHT_JOIN {queue} AS q FORCE INDEX (PRIMARY) ON q.id = s.id
SET q.owner_token = NULL,
    q.locked_until = NULL,
    q.delivery_count = GREATEST(q.delivery_count - 1, 0)
WHERE q.owner_token = ?1
