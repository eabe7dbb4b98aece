-- Whether owner ?1 still holds message ?2: changes one row if so, whatever the client wants counted. Runs
-- first in a transaction that must not go on without the lease. A microsecond more of it harms nobody.
UPDATE {queue}
SET locked_until = locked_until + 1
WHERE id = ?2 AND owner_token = ?1
