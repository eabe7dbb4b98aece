-- Extends the leases that p_owner holds and that have not expired. Returns the ids that changed;
-- an id that is missing has lost its lease.
CREATE OR REPLACE FUNCTION {queue+_renew}(p_owner uuid, p_ids uuid[], p_lease interval)
RETURNS SETOF uuid
LANGUAGE sql
SET enable_seqscan = off
AS $$
    UPDATE {queue}
    SET locked_until = statement_timestamp() + p_lease
    WHERE id = ANY (p_ids) AND owner_token = p_owner AND locked_until >= statement_timestamp()
    RETURNING id
$$;
