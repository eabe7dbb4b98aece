-- $1 source, $2 message id, $3 hash or NULL. Returns 1 if done, plus 2 if the hash differs.
SELECT {inbox+_already_processed}($1::text, $2::text, $3::bytea)
