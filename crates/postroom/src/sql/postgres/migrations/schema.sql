-- Whoever deploys the same tables at the same time waits here for the end of our transaction.
SELECT pg_advisory_xact_lock(hashtextextended('postroom {outbox}', 0));

-- Only when it is missing: the owner of a schema need not be allowed to create one.
DO $$
BEGIN
    IF to_regnamespace('{schema}') IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END
$$;

