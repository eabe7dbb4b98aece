-- $1 owner, $2 ids, $3 worker, $4 whether to keep the messages in the archive (0 or 1).
-- The ids come back as one array: a row for each would cost the client as much as the claim did.
SELECT array_agg(id) FILTER (WHERE id IS NOT NULL),
       join_id, join_status, completed_steps, failed_steps, expected_steps
FROM {queue+_ack}($1::uuid, {ids}, $3::text, $4::bigint <> 0)
GROUP BY join_id, join_status, completed_steps, failed_steps, expected_steps
