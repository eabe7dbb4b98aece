-- $1 join id, $2 message id. Returns the state of the message and the status of the join.
SELECT message_state, join_status FROM {join+_attach}($1::uuid, $2::uuid)
