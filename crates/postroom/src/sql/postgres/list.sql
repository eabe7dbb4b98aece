-- $1 statuses, $2 topic or NULL, $3 list what follows this id or NULL, $4 at most so many.
SELECT {shown}
FROM {queue+_all} AS q
{with_seen}
WHERE q.status = ANY ($1::bigint[])
  AND ($2::text IS NULL OR q.topic = $2::text COLLATE "C")
  AND ($3::uuid IS NULL OR q.id > $3::uuid)
ORDER BY q.id
LIMIT $4::bigint
