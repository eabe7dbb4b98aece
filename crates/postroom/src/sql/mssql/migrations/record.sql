UPDATE {outbox+Schema} WITH (UPDLOCK, SERIALIZABLE)
SET [Checksum] = @P3, AppliedAt = SYSUTCDATETIME()
WHERE [Version] = @P1;
IF @@ROWCOUNT = 0
    INSERT INTO {outbox+Schema} ([Version], [Name], [Checksum]) VALUES (@P1, @P2, @P3);
GO
