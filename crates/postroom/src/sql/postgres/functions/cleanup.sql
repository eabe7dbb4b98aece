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
              AND c.relname ~ '_20[0-9]{2}[01][0-9][0-3][0-9]$'
              AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= p_before
            ORDER BY c.relname
        LOOP
            BEGIN
                -- Nobody adds to a day that is over, and acks go to today's partition: counting holds
                -- up only a late attach. The parent is locked for the drop alone.
                EXECUTE format('LOCK TABLE %s IN EXCLUSIVE MODE', v_partition);
                EXECUTE format('SELECT count(*) FROM %s', v_partition) INTO v_count;
                {reconcile_partition}
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', v_parent);
                EXECUTE format('DROP TABLE %s', v_partition);
                IF v_count > 0 THEN
                    RETURN v_count;
                END IF;
            EXCEPTION
                -- Busy: leave the partitions for the next time and delete by rows below.
                WHEN lock_not_available OR deadlock_detected THEN EXIT;
            END;
        END LOOP;
    END IF;

    -- Partition by partition, from the start of each: rows are appended as they are done, so the
    -- oldest come first and no sort is needed.
    FOR v_partition IN
        SELECT i.inhrelid::regclass
        FROM pg_inherits AS i
        JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = v_parent
        ORDER BY c.relname
    LOOP
        EXECUTE format(
            'WITH gone AS (DELETE FROM %1$s WHERE ctid = ANY (ARRAY('
            'SELECT ctid FROM %1$s WHERE processed_at < $1 LIMIT $2)) RETURNING message_id) '
            'SELECT count(*), array_agg(message_id) FROM gone', v_partition)
        INTO v_count, v_messages
        USING p_before, p_batch;
        {reconcile_messages}
        IF v_count > 0 THEN
            RETURN v_count;
        END IF;
    END LOOP;
    RETURN 0;
END
$$;
