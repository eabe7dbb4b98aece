-- Makes a message a step of a join and says what became of the message:
-- 0 pending, 1 already done, 2 already dead, 3 unknown. Counters are left alone.
-- It locks the message's row first, wherever it is: it runs either before an ack (which then counts
-- the new member) or after it (and then says "already done", for reconcile to count), and a cleanup or
-- purge of the row waits and then counts the member itself.
-- An unknown join raises a foreign key violation.
CREATE OR REPLACE FUNCTION {join+_attach}(p_join uuid, p_message uuid)
RETURNS TABLE (message_state smallint, join_status smallint)
LANGUAGE plpgsql
{lookup_guards}
AS $$
DECLARE
    v_state smallint := 0;
BEGIN
    {read_committed}
    PERFORM 1 FROM {outbox} AS o WHERE o.id = p_message FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM 1 FROM {outbox} AS o WHERE o.message_id = p_message AND o.message_id <> o.id FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        v_state := 2;
        PERFORM 1 FROM {outbox+_dead} AS d WHERE d.id = p_message FOR KEY SHARE;
        IF NOT FOUND THEN
            PERFORM 1 FROM {outbox+_dead} AS d
            WHERE d.message_id = p_message AND d.message_id <> d.id
            FOR KEY SHARE;
        END IF;
    END IF;
    IF NOT FOUND THEN
        v_state := 1;
        PERFORM 1 FROM {outbox+_done} AS d WHERE d.id = p_message OR d.message_id = p_message FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        v_state := 3;
    END IF;
    INSERT INTO {join_member} (message_id, join_id) VALUES (p_message, p_join) ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT v_state, j.status FROM {join} AS j WHERE j.join_id = p_join;
END
$$;
