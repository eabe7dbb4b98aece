-- $1 owner, $2 ids, $3 errors (the last one serves the rest), $4 worker.
SELECT id, join_id, join_status, completed_steps, failed_steps, expected_steps
FROM {queue+_fail}($1::uuid, {ids}, $3::text[], $4::text)
