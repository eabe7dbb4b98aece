-- $1 join id. Returns 1 cancelled, 0 it had finished before, -1 unknown.
SELECT {join+_cancel}($1::uuid)
