-- Settles what a dispatcher has gathered, from any number of claims, in one call. Every id comes with
-- the owner that claimed it: a message that was claimed again meanwhile, even by the same process, is
-- left alone. Arrays run in parallel; delays are in microseconds, NULL for the default backoff.
-- Returns one row per operation with the ids that really changed (ack, abandon, fail, release), and
-- one per join that this call finished (operation `join`, the join's id, its counters).
-- p_places tells where the first of the acked rows were put by their claims, claim by claim; p_versions tells
-- which write of the table each claim was (see version.sql), p_counts how many of its rows are among them.
-- What lies at a place as its claim has left it there is the message, as it was claimed: nothing is looked
-- up and no id compared. That way all of these are acked (operation `placed`) or none, and then they are
-- looked for by id like the rest.
-- Locks, in this order: settled rows, join members, joins by join_id, the wait messages of finished
-- joins, abandoned rows. An abandoned wait message comes last because whoever finishes its join holds
-- the join and then wants that row.
DROP FUNCTION IF EXISTS {queue+_settle}(text, boolean, uuid[], uuid[], uuid[], uuid[], text[], uuid[], uuid[], bigint[], text[], bigint[], uuid[], uuid[]);
DROP FUNCTION IF EXISTS {queue+_settle}(text, boolean, uuid[], uuid[], tid[], uuid[], uuid[], text[], uuid[], uuid[], bigint[], text[], bigint[], uuid[], uuid[]);
CREATE OR REPLACE FUNCTION {queue+_settle}(
    p_worker text, p_keep boolean,
    p_acked uuid[], p_acked_by uuid[], p_places tid[], p_versions bigint[], p_counts bigint[],
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
    v_copied bigint;
    v_deleted bigint;
    v_placed integer := 0;
    v_places tid[];
    v_transaction xid;
    v_owner uuid;
    {declare_joins}
    v_completed {message_id_type}[];
    v_failed {message_id_type}[];
BEGIN
    {read_committed}
    IF cardinality(p_acked) > 0 THEN
        IF cardinality(p_places) > 0 THEN
            BEGIN
                FOR v_claim IN 1 .. cardinality(p_versions) LOOP
                    v_places := p_places[v_placed + 1:v_placed + p_counts[v_claim]];
                    v_transaction := (p_versions[v_claim] & 4294967295)::text::xid;
                    v_owner := p_acked_by[v_placed + 1];
                    v_copied := p_counts[v_claim];
                    {completed_at_places}
                    IF p_keep THEN
                        INSERT INTO {queue+_done} ({columns}, processed_at, processed_by)
                        SELECT {columns}, statement_timestamp(), p_worker
                        FROM {queue} AS q
                        WHERE {unchanged};
                        GET DIAGNOSTICS v_copied = ROW_COUNT;
                    END IF;
                    DELETE FROM {queue} AS q
                    WHERE {unchanged};
                    GET DIAGNOSTICS v_deleted = ROW_COUNT;
                    -- The file is compared under the lock of the DELETE, so that nobody moves the rows meanwhile.
                    IF least(v_copied, v_deleted) < p_counts[v_claim]
                        OR pg_relation_filenode('{queue}')::bigint <> ((p_versions[v_claim] >> 32) & 4294967295)
                        {or_joins_have_come}
                    THEN
                        RAISE EXCEPTION USING ERRCODE = 'PRM01', MESSAGE = 'a message is not where it was claimed';
                    END IF;
                    v_placed := v_placed + v_deleted;
                END LOOP;
                RETURN QUERY SELECT 'placed', NULL::uuid[], NULL::integer, NULL::integer;
            EXCEPTION WHEN SQLSTATE 'PRM01' THEN
                -- All of that is undone.
                v_placed := 0;
                v_completed := NULL;
            END;
        END IF;
        IF v_placed < cardinality(p_acked) THEN
            WITH gone AS (
                DELETE FROM {queue} AS q
                USING unnest(p_acked[v_placed + 1:], p_acked_by[v_placed + 1:]) AS s (id, owner)
                WHERE q.id = s.id AND q.owner_token = s.owner
                RETURNING q.*),
            kept AS (
                INSERT INTO {queue+_done} ({columns}, processed_at, processed_by)
                SELECT {columns}, statement_timestamp(), p_worker
                FROM gone
                WHERE p_keep)
            SELECT array_agg(id), v_completed || array_agg(message_id) INTO v_ids, v_completed FROM gone;
            RETURN QUERY SELECT 'ack', v_ids, NULL::integer, NULL::integer;
        END IF;
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
