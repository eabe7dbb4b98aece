-- Settles what a dispatcher has gathered, from any number of claims, in one call. Every id comes with
-- the owner that claimed it: a message that was claimed again meanwhile, even by the same process, is
-- left alone. Arrays run in parallel; delays are in microseconds, NULL for the default backoff.
-- Returns one row per operation with the ids that really changed (ack, abandon, fail, release), and
-- one per join that this call finished (operation `join`, the join's id, its counters).
-- p_places tells where the acked rows were when they were claimed, NULL where nobody knows. What still
-- lies there needs no look into the index, which is a quarter of the cost of an ack; the rest is looked
-- for by id. A place never decides: id and owner have to be right as well.
-- Locks, in this order: settled rows, join members, joins by join_id, the wait messages of finished
-- joins, abandoned rows. An abandoned wait message comes last because whoever finishes its join holds
-- the join and then wants that row.
DROP FUNCTION IF EXISTS {queue+_settle}(text, boolean, uuid[], uuid[], uuid[], uuid[], text[], uuid[], uuid[], bigint[], text[], bigint[], uuid[], uuid[]);
CREATE OR REPLACE FUNCTION {queue+_settle}(
    p_worker text, p_keep boolean,
    p_acked uuid[], p_acked_by uuid[], p_places tid[],
    p_failed uuid[], p_failed_by uuid[], p_reasons text[],
    p_abandoned uuid[], p_abandoned_by uuid[], p_delays bigint[], p_errors text[], p_deferred bigint[],
    p_released uuid[], p_released_by uuid[])
RETURNS TABLE (operation text, ids uuid[], completed_steps integer, failed_steps integer)
LANGUAGE plpgsql
{guards}
AS $$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_moved uuid[];
    v_moved_messages {message_id_type}[];
    v_completed {message_id_type}[];
    v_failed {message_id_type}[];
BEGIN
    {read_committed}
    IF cardinality(p_acked) > 0 THEN
        WITH gone AS (
            DELETE FROM {queue} AS q
            WHERE q.ctid = ANY (p_places)
              -- IS TRUE keeps this a lookup in a hash table; otherwise it would be planned as a join.
              AND ((q.id, q.owner_token) IN (SELECT s.id, s.owner FROM unnest(p_acked, p_acked_by) AS s (id, owner))) IS TRUE
            RETURNING q.*),
        kept AS (
            INSERT INTO {queue+_done} ({columns}, processed_at, processed_by)
            SELECT {columns}, statement_timestamp(), p_worker
            FROM gone
            WHERE p_keep)
        SELECT array_agg(id), array_agg(message_id) INTO v_ids, v_completed FROM gone;
        IF v_ids IS NULL OR cardinality(v_ids) < cardinality(p_acked) THEN
            WITH gone AS (
                DELETE FROM {queue} AS q
                USING unnest(p_acked, p_acked_by) AS s (id, owner)
                WHERE q.id = s.id AND q.owner_token = s.owner
                RETURNING q.*),
            kept AS (
                INSERT INTO {queue+_done} ({columns}, processed_at, processed_by)
                SELECT {columns}, statement_timestamp(), p_worker
                FROM gone
                WHERE p_keep)
            SELECT array_agg(id), array_agg(message_id) INTO v_moved, v_moved_messages FROM gone;
            v_ids := v_ids || v_moved;
            v_completed := v_completed || v_moved_messages;
        END IF;
        RETURN QUERY SELECT 'ack', v_ids, NULL::integer, NULL::integer;
    END IF;
    IF cardinality(p_failed) > 0 THEN
        WITH gone AS (
            DELETE FROM {queue} AS q
            USING unnest(p_failed, p_failed_by, p_reasons) AS s (id, owner, error)
            WHERE q.id = s.id AND q.owner_token = s.owner
            RETURNING q.*, s.error),
        kept AS (
            INSERT INTO {queue+_dead} ({columns}, processed_at, processed_by)
            SELECT {columns_with_error}, statement_timestamp(), p_worker
            FROM gone
            ON CONFLICT (id) DO UPDATE
            SET ({columns}, processed_at, processed_by) = ({columns_excluded}, excluded.processed_at, excluded.processed_by))
        SELECT array_agg(id), array_agg(message_id) INTO v_ids, v_failed FROM gone;
        RETURN QUERY SELECT 'fail', v_ids, NULL::integer, NULL::integer;
    END IF;
    {count_settled}
    IF cardinality(p_abandoned) > 0 THEN
        WITH released AS (
            UPDATE {queue} AS q
            SET owner_token = NULL,
                locked_until = NULL,
                attempt_count = q.attempt_count + 1,
                deferral_count = q.deferral_count + settled.deferred::integer,
                last_attempt_at = statement_timestamp(),
                last_error = coalesce(settled.error, q.last_error),
                {set_backoff}
                next_attempt_at = greatest(q.due_time, statement_timestamp() + coalesce(settled.delay,
                    make_interval(secs => least(power(2, least(q.attempt_count + 1, 30)), 60))))
            FROM (
                SELECT s.id, s.owner, s.delay * interval '1 microsecond' AS delay, s.error, s.deferred
                FROM unnest(p_abandoned, p_abandoned_by, p_delays, p_errors, p_deferred)
                    AS s (id, owner, delay, error, deferred)) AS settled
            WHERE q.id = settled.id AND q.owner_token = settled.owner
            RETURNING q.id)
        SELECT array_agg(id) INTO v_ids FROM released;
        {wake_completed}
        RETURN QUERY SELECT 'abandon', v_ids, NULL::integer, NULL::integer;
    END IF;
    IF cardinality(p_released) > 0 THEN
        WITH released AS (
            UPDATE {queue} AS q
            SET owner_token = NULL,
                locked_until = NULL,
                delivery_count = greatest(q.delivery_count - 1, 0)
            FROM unnest(p_released, p_released_by) AS s (id, owner)
            WHERE q.id = s.id AND q.owner_token = s.owner
            RETURNING q.id)
        SELECT array_agg(id) INTO v_ids FROM released;
        RETURN QUERY SELECT 'release', v_ids, NULL::integer, NULL::integer;
    END IF;
END
$$;
