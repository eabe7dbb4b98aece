-- One page of done messages with ids from p_from to p_to, in the order of their ids, newest or oldest
-- first. The other conditions may be NULL. The planner believes that the BRIN index helps little, and
-- would read the whole archive for the last minute of it: so it may not.
CREATE OR REPLACE FUNCTION {queue+_archive}(p_from uuid, p_to uuid, p_newest_first boolean, p_limit bigint, p_topic text DEFAULT NULL, p_correlation_id text DEFAULT NULL, p_older timestamptz DEFAULT NULL, p_newer timestamptz DEFAULT NULL, p_source text DEFAULT NULL)
RETURNS SETOF {queue+_done}
LANGUAGE plpgsql
STABLE
SET enable_seqscan = off
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    IF p_newest_first THEN
        RETURN QUERY
        SELECT * FROM {queue+_done} AS d WHERE {archived} ORDER BY d.id DESC LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT * FROM {queue+_done} AS d WHERE {archived} ORDER BY d.id LIMIT p_limit;
    END IF;
END
$$;
