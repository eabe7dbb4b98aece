-- The inbox in one table, with the columns of the specification: Status Seen, Processing, Done or Dead.
-- Id is the work item: it is missing until a message is enqueued, and so are Topic and Payload.
--
-- KeyHash is the key: a hash over source and message id, byte by byte. SQL Server would take 'a' and 'a '
-- for the same key whatever the collation, and two names of 255 characters are longer than a key may be.
-- BackoffUntil is what an abandon set; NextAttemptAt folds it together with the due time, and must be
-- folded anew when a redelivery changes the due time.
CREATE TABLE {inbox} (
    Source nvarchar(510) COLLATE Latin1_General_100_BIN2 NOT NULL,
    MessageId nvarchar(510) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Topic nvarchar(510) COLLATE Latin1_General_100_BIN2 NULL,
    Payload nvarchar(max) NULL,
    Hash varbinary(max) NULL,
    FirstSeenUtc datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    LastSeenUtc datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    Status varchar(20) NOT NULL DEFAULT 'Seen',
    LockedUntil datetime2(7) NULL,
    OwnerToken uniqueidentifier NULL,
    Attempt int NOT NULL DEFAULT 0,
    LastError nvarchar(max) NULL,
    NextAttemptAt datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    DueTimeUtc datetime2(7) NULL,
    Sequence bigint IDENTITY (1, 1) NOT NULL,
    Id uniqueidentifier NULL,
    CorrelationId nvarchar(510) COLLATE Latin1_General_100_BIN2 NULL,
    BackoffUntil datetime2(7) NULL,
    LastAttemptAt datetime2(7) NULL,
    ProcessedAt datetime2(7) NULL,
    ProcessedBy nvarchar(200) NULL,
    DeferralCount int NOT NULL DEFAULT 0,
    DeliveryCount int NOT NULL DEFAULT 0,
    Headers nvarchar(max) NULL,
    IdOrder AS {id_order} PERSISTED,
    KeyHash AS CAST(HASHBYTES('SHA2_256', CAST(Source AS varbinary(1020)) + 0x0000 + CAST(MessageId AS varbinary(1020))) AS binary(32)) PERSISTED NOT NULL,
    CONSTRAINT [PK_{plain inbox}] PRIMARY KEY NONCLUSTERED (KeyHash),
    CONSTRAINT [UX_{plain inbox}_Sequence] UNIQUE CLUSTERED (Sequence)
);

ALTER TABLE {inbox} SET (LOCK_ESCALATION = DISABLE);

-- In the order of a claim.
CREATE INDEX [IX_{plain inbox}_WorkQueue] ON {inbox} (Status, NextAttemptAt, DueTimeUtc) INCLUDE (Source, MessageId, OwnerToken, LockedUntil, Id) WHERE Status = 'Processing';

CREATE INDEX [IX_{plain inbox}_DueTime] ON {inbox} (DueTimeUtc) WHERE DueTimeUtc IS NOT NULL AND Status = 'Processing';

CREATE INDEX [IX_{plain inbox}_Cleanup] ON {inbox} (Status, LastSeenUtc) WHERE Status = 'Done';

-- Settling finds its messages here.
CREATE UNIQUE INDEX [UX_{plain inbox}_Id] ON {inbox} (Id) WHERE Id IS NOT NULL;

CREATE INDEX [IX_{plain inbox}_Order] ON {inbox} (IdOrder);

-- A message may be known by its bare id.
CREATE INDEX [IX_{plain inbox}_Message] ON {inbox} (MessageId);

-- Done messages that still have their content.
CREATE INDEX [IX_{plain inbox}_Done] ON {inbox} (ProcessedAt) WHERE Status = 'Done' AND Topic IS NOT NULL;

CREATE INDEX [IX_{plain inbox}_Dead] ON {inbox} (Id) INCLUDE (ProcessedAt, Topic, CorrelationId) WHERE Status = 'Dead';
