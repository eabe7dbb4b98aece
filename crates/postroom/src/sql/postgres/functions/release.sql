-- Hands the messages that p_owner still holds back as if they had never been claimed: ready at
-- once, no attempt and no delivery counted. For a worker that stops. Returns the ids that changed.
CREATE OR REPLACE FUNCTION {queue+_release}(p_owner uuid, p_ids uuid[])
RETURNS SETOF uuid
LANGUAGE sql
SET enable_seqscan = off
AS $$
    UPDATE {queue}
    SET owner_token = NULL,
        locked_until = NULL,
        delivery_count = greatest(delivery_count - 1, 0)
    WHERE id = ANY (p_ids) AND owner_token = p_owner
    RETURNING id
$$;
