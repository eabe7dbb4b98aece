-- Forgets up to p_batch done messages that were last seen before p_before: after this, the same
-- (source, message id) counts as new. Returns how many. Seen, processing and dead ones stay.
CREATE OR REPLACE FUNCTION {inbox+_forget}(p_before timestamptz, p_batch integer)
RETURNS bigint
LANGUAGE sql
AS $$
    WITH doomed AS (
        SELECT s.message_id, s.source
        FROM {inbox+_seen} AS s
        WHERE s.last_seen < p_before
          AND (s.state = 3 OR (s.state = 2
            AND NOT EXISTS (SELECT FROM {inbox} AS q WHERE q.id = s.work_id)
            AND NOT EXISTS (SELECT FROM {inbox+_dead} AS d WHERE d.id = s.work_id)))
        LIMIT p_batch
        FOR UPDATE SKIP LOCKED),
    gone AS (
        DELETE FROM {inbox+_seen} AS s
        USING doomed
        WHERE s.message_id = doomed.message_id AND s.source = doomed.source
        RETURNING 1)
    SELECT count(*) FROM gone
$$;
