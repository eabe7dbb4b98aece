-- What people who run a store need: keys that make an enqueue happen once, and a trail of what operators
-- did.
--
-- A key stands for the message that was enqueued under it; Hash is a SHA-256 of that message. As in the
-- inbox, keys are compared by a hash of their bytes.
CREATE TABLE {outbox+Key} (
    IdempotencyKey nvarchar(510) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Hash varbinary(64) NOT NULL,
    Id uniqueidentifier NOT NULL,
    MessageId uniqueidentifier NOT NULL,
    CreatedAt datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    KeyHash AS CAST(HASHBYTES('SHA2_256', CAST(IdempotencyKey AS varbinary(1020))) AS binary(32)) PERSISTED NOT NULL,
    CONSTRAINT [PK_{plain outbox}Key] PRIMARY KEY CLUSTERED (KeyHash)
);

CREATE INDEX [IX_{plain outbox}Key_Time] ON {outbox+Key} (CreatedAt);

-- Who did what, when, to what. Never a payload. The longest subject is longer than a key may be.
CREATE TABLE {outbox+Audit} (
    Id bigint IDENTITY (1, 1) NOT NULL,
    RecordedAt datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    Actor nvarchar(1200) NOT NULL,
    Action nvarchar(1200) NOT NULL,
    Subject nvarchar(1200) NOT NULL,
    MessageCount bigint NOT NULL,
    Detail nvarchar(max) NULL,
    SubjectHash AS CAST(HASHBYTES('SHA2_256', CAST(Subject AS varbinary(2400))) AS binary(32)) PERSISTED,
    CONSTRAINT [PK_{plain outbox}Audit] PRIMARY KEY CLUSTERED (Id)
);

CREATE INDEX [IX_{plain outbox}Audit_Subject] ON {outbox+Audit} (SubjectHash, Id);

CREATE INDEX [IX_{plain outbox}Audit_Time] ON {outbox+Audit} (RecordedAt);
