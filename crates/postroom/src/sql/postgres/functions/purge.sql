-- Deletes dead messages for good: those in p_ids, or with p_ids NULL up to p_batch of those that
-- died before p_before, oldest first. Returns how many.
CREATE OR REPLACE FUNCTION {queue+_purge}(p_ids uuid[], p_before timestamptz, p_batch integer)
RETURNS bigint
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[] := p_ids;
    v_count bigint;
BEGIN
    IF v_ids IS NULL THEN
        v_ids := ARRAY(
            SELECT id FROM {queue+_dead} WHERE processed_at < p_before ORDER BY processed_at LIMIT p_batch);
    END IF;
    {forget_seen}
    DELETE FROM {queue+_dead} WHERE id = ANY (v_ids);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
