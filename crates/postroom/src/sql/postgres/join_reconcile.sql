-- $1 join id. The first row says how many steps were counted, -1 for an unknown join.
SELECT counted, join_id, join_status, completed_steps, failed_steps, expected_steps
FROM {join+_reconcile}($1::uuid)
