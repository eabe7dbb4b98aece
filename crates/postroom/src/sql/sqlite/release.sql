-- ?1 owner, ?2 ids as JSON. Hands messages back as if they had never been claimed.
UPDATE {queue}
SET owner_token = NULL,
    locked_from = NULL,
    locked_until = NULL,
    delivery_count = max(delivery_count - 1, 0)
WHERE owner_token = ?1 AND id IN {ids}
RETURNING id
