-- Makes a message a step of a join and says what became of the message:
-- 0 pending, 1 already done, 2 already dead, 3 unknown. Counters are left alone.
-- It locks the outbox row first, so that it runs either before an ack (which then counts the new
-- member) or after it (and then says "already done", for reconcile to count).
-- An unknown join raises a foreign key violation.
CREATE OR REPLACE FUNCTION {join+_attach}(p_join uuid, p_message uuid)
RETURNS TABLE (message_state smallint, join_status smallint)
LANGUAGE plpgsql
AS $$
DECLARE
    v_state smallint := 3;
BEGIN
    PERFORM 1 FROM {outbox} AS o
    WHERE o.id = p_message OR (o.message_id = p_message AND o.message_id <> o.id)
    FOR KEY SHARE;
    IF FOUND THEN
        v_state := 0;
    ELSE
        v_state := {join+_message_state}(p_message);
    END IF;
    INSERT INTO {join_member} (message_id, join_id) VALUES (p_message, p_join) ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT v_state, j.status FROM {join} AS j WHERE j.join_id = p_join;
END
$$;
