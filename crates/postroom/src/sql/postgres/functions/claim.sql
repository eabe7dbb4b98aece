-- Claims up to p_batch ready messages for p_owner and returns them whole, in no particular order.
-- Ready: due, and free or with an expired lease. p_from bounds the scan of the ready index from
-- below; see watermark.rs. What is missing in the batch then is looked for everywhere,
-- in the same transaction ('-infinity' looks everywhere at once), unless p_everywhere says that the
-- caller will do that by himself now and then.
-- Locks: the claimed rows; rows that others hold are skipped.
-- The claim finds its rows by ctid, which is a third faster than a join on id. A row that somebody
-- else changed between our snapshot and our lock is left for the next claim.
-- `place` is where each row lies now, for settle, which finds it there without a look into the index.
DROP FUNCTION IF EXISTS {queue+_claim}(uuid, interval, integer, timestamptz);
DROP FUNCTION IF EXISTS {queue+_claim}(uuid, interval, integer, timestamptz, boolean);
CREATE OR REPLACE FUNCTION {queue+_claim}(p_owner uuid, p_lease interval, p_batch integer, p_from timestamptz DEFAULT '-infinity', p_everywhere boolean DEFAULT true)
RETURNS TABLE ({live_columns_typed}, place tid)
LANGUAGE plpgsql
{guards}
AS $$
#variable_conflict use_column
DECLARE
    v_claimed integer;
BEGIN
    RETURN QUERY
    UPDATE {queue}
    SET owner_token = p_owner,
        locked_until = statement_timestamp() + p_lease,
        delivery_count = delivery_count + 1
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM {queue}
        WHERE next_attempt_at >= p_from
          AND next_attempt_at <= statement_timestamp()
          AND (locked_until IS NULL OR locked_until < statement_timestamp())
        ORDER BY next_attempt_at
        LIMIT p_batch
        FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING {live_columns}, ctid;
    GET DIAGNOSTICS v_claimed = ROW_COUNT;
    IF v_claimed < p_batch AND p_from > '-infinity' AND p_everywhere THEN
        RETURN QUERY
        UPDATE {queue}
        SET owner_token = p_owner,
            locked_until = statement_timestamp() + p_lease,
            delivery_count = delivery_count + 1
        WHERE ctid = ANY (ARRAY(
            SELECT ctid
            FROM {queue}
            WHERE next_attempt_at <= statement_timestamp()
              AND (locked_until IS NULL OR locked_until < statement_timestamp())
            ORDER BY next_attempt_at
            LIMIT p_batch - v_claimed
            FOR NO KEY UPDATE SKIP LOCKED))
        RETURNING {live_columns}, ctid;
    END IF;
END
$$;
