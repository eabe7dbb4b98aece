-- Moves the messages that p_owner still holds to the dead table with their error, and counts them
-- as failed steps of their joins. p_errors holds one error per id; the last one serves the rest.
-- Returns and locks as the ack function does.
CREATE OR REPLACE FUNCTION {queue+_fail}(p_owner uuid, p_ids uuid[], p_errors text[], p_worker text)
RETURNS TABLE (id uuid, join_id uuid, join_status smallint, completed_steps integer, failed_steps integer, expected_steps integer)
LANGUAGE plpgsql
{guards}
AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_messages {message_id_type}[];
BEGIN
    {read_committed}
    WITH settled AS (
        SELECT s.id, p_errors[least(s.n, cardinality(p_errors))] AS error
        FROM unnest(p_ids) WITH ORDINALITY AS s (id, n)),
    gone AS (
        DELETE FROM {queue} AS q
        USING settled
        WHERE q.id = settled.id AND q.owner_token = p_owner
        RETURNING q.*, settled.error),
    kept AS (
        INSERT INTO {queue+_dead} ({columns}, processed_at, processed_by)
        SELECT {columns_with_error}, statement_timestamp(), p_worker
        FROM gone
        -- An id that died before and was enqueued again dies again: the later death counts.
        ON CONFLICT (id) DO UPDATE
        SET ({columns}, processed_at, processed_by) = ({columns_excluded}, excluded.processed_at, excluded.processed_by))
    SELECT array_agg(id), array_agg(message_id) INTO v_ids, v_messages FROM gone;
    RETURN QUERY
    SELECT s.id, NULL::uuid, NULL::smallint, NULL::integer, NULL::integer, NULL::integer
    FROM unnest(v_ids) AS s (id);
    {count_failed}
END
$$;
