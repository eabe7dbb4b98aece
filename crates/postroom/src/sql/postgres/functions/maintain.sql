-- Keeps the archive in shape: a partition for today and each of the next p_days days, and fresh
-- BRIN summaries. It attaches rather than creates partitions in place, which leaves acks running,
-- and gives way after a second to whoever holds a lock. Without the owner's rights it does nothing:
-- acks then go to the rest partition.
CREATE OR REPLACE FUNCTION {queue+_maintain}(p_days integer DEFAULT 14)
RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '1s'
AS $$
DECLARE
    v_parent regclass := '{queue+_done}'::regclass;
    v_day date;
    v_name text;
    v_from text;
    v_to text;
    v_index regclass;
BEGIN
    IF NOT pg_has_role((SELECT c.relowner FROM pg_class AS c WHERE c.oid = v_parent), 'USAGE') THEN
        RETURN;
    END IF;
    FOR v_day IN
        SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date + n FROM generate_series(0, p_days) AS n
    LOOP
        v_name := '{plain queue+_done}_' || to_char(v_day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass('{schema}.' || quote_ident(v_name)) IS NOT NULL;
        v_from := to_char(v_day, 'YYYY-MM-DD') || ' 00:00:00+00';
        v_to := to_char(v_day + 1, 'YYYY-MM-DD') || ' 00:00:00+00';
        BEGIN
            EXECUTE format('CREATE TABLE {schema}.%I (LIKE %s)', v_name, v_parent);
            EXECUTE format('ALTER TABLE %s ATTACH PARTITION {schema}.%I FOR VALUES FROM (%L) TO (%L)',
                v_parent, v_name, v_from, v_to);
        EXCEPTION
            -- The rest partition holds rows of that day, somebody was faster, or the lock was busy.
            WHEN check_violation OR duplicate_table OR unique_violation OR lock_not_available THEN NULL;
        END;
    END LOOP;
    FOR v_index IN
        SELECT x.indexrelid::regclass
        FROM pg_inherits AS i
        JOIN pg_index AS x ON x.indrelid = i.inhrelid
        JOIN pg_class AS c ON c.oid = x.indexrelid
        JOIN pg_am AS a ON a.oid = c.relam
        WHERE i.inhparent = v_parent AND a.amname = 'brin'
    LOOP
        BEGIN
            PERFORM brin_summarize_new_values(v_index);
        EXCEPTION
            -- A vacuum or another maintenance is at it.
            WHEN lock_not_available THEN NULL;
        END;
    END LOOP;
END
$$;
