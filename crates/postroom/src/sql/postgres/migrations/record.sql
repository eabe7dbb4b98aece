INSERT INTO {outbox+_schema} (version, name, checksum) VALUES ($1, $2, $3)
ON CONFLICT (version) DO UPDATE SET checksum = excluded.checksum, applied_at = excluded.applied_at;
