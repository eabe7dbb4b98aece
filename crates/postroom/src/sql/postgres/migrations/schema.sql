-- Whoever deploys the same tables at the same time waits here for the end of our transaction.
SELECT pg_advisory_xact_lock(hashtextextended('postroom {outbox}', 0));
CREATE SCHEMA IF NOT EXISTS {schema};
