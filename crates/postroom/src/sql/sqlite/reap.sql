-- Frees every expired lease and returns how many. Attempts are not counted: nobody tried and failed.
UPDATE {queue}
SET owner_token = NULL, locked_from = NULL, locked_until = NULL
WHERE locked_until < {now} OR locked_from > {now};

SELECT changes()
