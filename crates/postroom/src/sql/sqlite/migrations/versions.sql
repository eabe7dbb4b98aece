CREATE TABLE IF NOT EXISTS {outbox+_schema} (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000000)
) STRICT;
