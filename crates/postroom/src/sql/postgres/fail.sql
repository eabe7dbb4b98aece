-- $1 owner, $2 ids, $3 errors (the last one serves the rest), $4 worker.
-- The ids come back as one array: a row for each would cost the client as much as the claim did.
SELECT array_agg(id) FILTER (WHERE id IS NOT NULL),
       join_id, join_status, completed_steps, failed_steps, expected_steps
FROM {queue+_fail}($1::uuid, {ids}, $3::text[], $4::text)
GROUP BY join_id, join_status, completed_steps, failed_steps, expected_steps
