SELECT [Version], [Checksum] FROM {outbox+Schema} ORDER BY [Version]
