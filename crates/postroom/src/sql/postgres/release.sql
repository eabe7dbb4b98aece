-- $1 owner, $2 ids.
SELECT id FROM {queue+_release}($1::uuid, {ids}) AS released (id)
