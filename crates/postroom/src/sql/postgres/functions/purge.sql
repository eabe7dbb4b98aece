-- Deletes dead messages for good: those in p_ids, or with p_ids NULL up to p_batch of those that
-- were dead at p_before, oldest first. Returns how many. Members that are still pending although their
-- message is dead are counted first, so that no join waits for a row that is gone.
CREATE OR REPLACE FUNCTION {queue+_purge}(p_ids uuid[], p_before timestamptz, p_batch integer)
RETURNS bigint
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[] := p_ids;
    v_messages {message_id_type}[];
    {declare_sources}
    v_count bigint;
BEGIN
    IF v_ids IS NULL THEN
        v_ids := ARRAY(
            SELECT id FROM {queue+_dead} WHERE processed_at <= p_before ORDER BY processed_at LIMIT p_batch);
    END IF;
    {lock_dead_seen}
    WITH gone AS (
        DELETE FROM {queue+_dead} WHERE id = ANY (v_ids) RETURNING *)
    SELECT count(*), array_agg(message_id){and_sources}
    INTO v_count, v_messages{and_v_sources}
    FROM gone;
    {forget_seen}
    {count_purged}
    RETURN v_count;
END
$$;
