-- Frees every expired lease and returns how many. Attempts are not counted: nobody tried and failed.
UPDATE {queue}
SET owner_token = NULL, locked_until = NULL
WHERE locked_until < {now};

SELECT ROW_COUNT()
