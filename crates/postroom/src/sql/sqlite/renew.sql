-- ?1 owner, ?2 ids as JSON, ?3 lease in microseconds. An expired lease is not renewed.
UPDATE {queue}
SET locked_from = {now}, locked_until = {now} + ?3
WHERE owner_token = ?1 AND locked_until >= {now} AND locked_from <= {now} AND id IN {ids}
RETURNING id
