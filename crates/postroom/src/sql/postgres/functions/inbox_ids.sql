-- Turns keys into work item ids, for settling by (source, message id) or by the bare message id.
-- p_keys is a JSON array of [source or null, message id].
CREATE OR REPLACE FUNCTION {inbox+_ids}(p_keys jsonb)
RETURNS uuid[]
LANGUAGE plpgsql
STABLE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT s.work_id
        FROM jsonb_array_elements(p_keys) AS k (key)
        JOIN {inbox+_seen} AS s
          ON s.message_id = k.key ->> 1 AND (k.key ->> 0 IS NULL OR s.source = k.key ->> 0)
        WHERE s.work_id IS NOT NULL);
END
$$;
