-- Wakes workers that listen on channel $1. With rows in $2, only once one of them can be seen: they
-- were written in a transaction whose end is somebody else's. Returns a row when it has notified.
SELECT pg_notify($1::text, '')
WHERE cardinality($2::uuid[]) = 0
   OR EXISTS (SELECT FROM {queue} WHERE id = ANY ($2::uuid[]))
