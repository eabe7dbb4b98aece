-- Deletes done messages that were processed before p_before: a whole day's partition at once, else
-- up to p_batch rows, oldest first. Returns how many went; 0 means nothing is left to do.
-- Members that are still pending although their message is done are counted first, so that no join
-- waits for a row that is gone.
CREATE OR REPLACE FUNCTION {queue+_cleanup}(p_before timestamptz, p_batch integer)
RETURNS bigint
LANGUAGE plpgsql
SET lock_timeout = '1s'
AS $$
#variable_conflict use_column
DECLARE
    v_parent regclass := '{queue+_done}'::regclass;
    v_partition regclass;
    v_count bigint;
    v_messages {message_id_type}[];
BEGIN
    IF pg_has_role((SELECT c.relowner FROM pg_class AS c WHERE c.oid = v_parent), 'USAGE') THEN
        FOR v_partition IN
            SELECT c.oid::regclass
            FROM pg_inherits AS i
            JOIN pg_class AS c ON c.oid = i.inhrelid
            WHERE i.inhparent = v_parent
              AND c.relname ~ '_[0-9]{8}$'
              AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= p_before
            ORDER BY c.relname
        LOOP
            BEGIN
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', v_parent);
                EXECUTE format('SELECT count(*) FROM %s', v_partition) INTO v_count;
                {reconcile_partition}
                EXECUTE format('DROP TABLE %s', v_partition);
                IF v_count > 0 THEN
                    RETURN v_count;
                END IF;
            EXCEPTION
                -- Busy: leave the partition for the next time and delete by rows below.
                WHEN lock_not_available THEN NULL;
            END;
        END LOOP;
    END IF;

    WITH gone AS (
        DELETE FROM {queue+_done} AS d
        USING (
            SELECT tableoid AS part, ctid AS tid
            FROM {queue+_done}
            WHERE processed_at < p_before
            ORDER BY processed_at
            LIMIT p_batch) AS doomed
        WHERE d.tableoid = doomed.part AND d.ctid = doomed.tid
        RETURNING d.message_id)
    SELECT count(*), array_agg(message_id) INTO v_count, v_messages FROM gone;
    {reconcile_messages}
    RETURN v_count;
END
$$;
