-- $1 owner, $2 ids, $3 lease in microseconds.
SELECT id FROM {queue+_renew}($1::uuid, {ids}, $3::bigint * interval '1 microsecond') AS renewed (id)
