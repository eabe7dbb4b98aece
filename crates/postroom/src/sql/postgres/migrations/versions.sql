CREATE TABLE IF NOT EXISTS {outbox+_schema} (
    version bigint PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT statement_timestamp()
);
