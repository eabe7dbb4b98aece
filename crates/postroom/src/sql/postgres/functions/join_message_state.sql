-- What became of an outbox message: 0 live, 1 done, 2 dead, 3 unknown. The archive is asked last:
-- its BRIN index answers in about a millisecond, the others in microseconds.
CREATE OR REPLACE FUNCTION {join+_message_state}(p_message uuid)
RETURNS smallint
LANGUAGE plpgsql
STABLE
{lookup_guards}
AS $$
BEGIN
    IF EXISTS (SELECT FROM {outbox} AS o WHERE o.id = p_message)
        OR EXISTS (SELECT FROM {outbox} AS o WHERE o.message_id = p_message AND o.message_id <> o.id) THEN
        RETURN 0;
    ELSIF EXISTS (SELECT FROM {outbox+_dead} AS d WHERE d.id = p_message)
        OR EXISTS (SELECT FROM {outbox+_dead} AS d WHERE d.message_id = p_message AND d.message_id <> d.id) THEN
        RETURN 2;
    ELSIF EXISTS (SELECT FROM {outbox+_done} AS d WHERE d.id = p_message OR d.message_id = p_message) THEN
        RETURN 1;
    END IF;
    RETURN 3;
END
$$;
