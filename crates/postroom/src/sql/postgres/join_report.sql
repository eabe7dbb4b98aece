-- $1 join id, $2 message id, $3 member status: 1 completed, 2 failed.
SELECT outcome, join_id, join_status, completed_steps, failed_steps, expected_steps
FROM {join+_report}($1::uuid, $2::uuid, $3::bigint::smallint)
