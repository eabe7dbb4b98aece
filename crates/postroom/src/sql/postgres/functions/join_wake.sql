-- Makes the wait messages of finished joins ready. It touches every wait row, leased or due as it
-- may be: an abandon that runs at the same time then meets this one on the row lock.
CREATE OR REPLACE FUNCTION {join+_wake}(p_joins uuid[])
RETURNS void
LANGUAGE sql
AS $$
    UPDATE {outbox} AS o
    SET next_attempt_at = statement_timestamp()
    FROM {join+_wait} AS w
    WHERE w.join_id = ANY (p_joins) AND o.id = w.message_id
$$;
