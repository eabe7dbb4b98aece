-- $1 owner, $2 ids, $3 worker, $4 whether to keep the messages in the archive (0 or 1).
SELECT id, join_id, join_status, completed_steps, failed_steps, expected_steps
FROM {queue+_ack}($1::uuid, {ids}, $3::text, $4::bigint <> 0)
