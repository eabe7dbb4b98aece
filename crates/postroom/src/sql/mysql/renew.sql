-- ?1 owner, ?2 ids as JSON, ?3 lease in microseconds. An expired lease is not renewed.
{resolve}UPDATE {id_rows} AS s
STRAIGHT_JOIN {queue} AS q FORCE INDEX (PRIMARY) ON q.id = s.id
SET q.locked_until = {now} + ?3
WHERE q.owner_token = ?1 AND q.locked_until >= {now};

SELECT q.id
FROM {held} AND q.locked_until >= {now}
