-- Frees every expired lease and returns how many. Attempts are not counted: nobody tried and failed.
CREATE OR REPLACE FUNCTION {queue+_reap}()
RETURNS bigint
LANGUAGE sql
AS $$
    WITH reaped AS (
        UPDATE {queue}
        SET owner_token = NULL, locked_until = NULL
        WHERE id IN (
            SELECT id
            FROM {queue}
            WHERE locked_until < statement_timestamp()
            FOR NO KEY UPDATE SKIP LOCKED)
        RETURNING 1)
    SELECT count(*) FROM reaped
$$;
