IF OBJECT_ID(N'{outbox+Schema}', N'U') IS NULL
    CREATE TABLE {outbox+Schema} (
        [Version] bigint NOT NULL,
        [Name] nvarchar(100) NOT NULL,
        [Checksum] nvarchar(100) NOT NULL,
        AppliedAt datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
        CONSTRAINT [PK_{plain outbox}Schema] PRIMARY KEY ([Version])
    );
GO
