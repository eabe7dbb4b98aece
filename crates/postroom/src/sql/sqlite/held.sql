-- Whether owner ?1 still holds message ?2: changes one row if so. Runs first in a transaction that
-- must not go on without the lease.
UPDATE {queue}
SET owner_token = owner_token
WHERE id = ?2 AND owner_token = ?1
