REPLACE INTO {outbox+_schema} (version, name, checksum) VALUES (?1, ?2, ?3);
