-- The outbox in one table, with the columns of the specification: Status 0 ready, 1 in progress, 2 done,
-- 3 failed. What postroom keeps beside them follows at the end. It differs in four points:
--
-- Sequence is the key, and Id is unique among messages that are not finished: an id that was done or has
-- failed may be enqueued again.
-- IdOrder is Id as 16 bytes in the order in which everybody else sorts UUIDs. SQL Server compares the last
-- bytes of a uniqueidentifier first, and lists go by id.
-- 255 characters may be 510 units of UTF-16, so names are nvarchar(510).
-- Times have all seven digits: rounded to milliseconds, a message could be due after it was enqueued.
CREATE TABLE {outbox} (
    Id uniqueidentifier NOT NULL DEFAULT NEWID(),
    Topic nvarchar(510) COLLATE Latin1_General_100_BIN2 NOT NULL,
    Payload nvarchar(max) NOT NULL,
    CreatedAt datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    Status tinyint NOT NULL DEFAULT 0,
    LockedUntil datetime2(7) NULL,
    OwnerToken uniqueidentifier NULL,
    IsProcessed bit NOT NULL DEFAULT 0,
    ProcessedAt datetimeoffset(7) NULL,
    ProcessedBy nvarchar(200) NULL,
    RetryCount int NOT NULL DEFAULT 0,
    LastError nvarchar(max) NULL,
    NextAttemptAt datetimeoffset(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    MessageId uniqueidentifier NOT NULL DEFAULT NEWID(),
    CorrelationId nvarchar(510) COLLATE Latin1_General_100_BIN2 NULL,
    DueTimeUtc datetimeoffset(7) NULL,
    Sequence bigint IDENTITY (1, 1) NOT NULL,
    LastAttemptAt datetimeoffset(7) NULL,
    DeferralCount int NOT NULL DEFAULT 0,
    DeliveryCount int NOT NULL DEFAULT 0,
    Headers nvarchar(max) NULL,
    IdOrder AS {id_order} PERSISTED,
    CONSTRAINT [PK_{plain outbox}] PRIMARY KEY CLUSTERED (Sequence)
);

-- A claim of many messages must not turn into a lock on all of them.
ALTER TABLE {outbox} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX [IX_{plain outbox}_WorkQueue] ON {outbox} (Status, CreatedAt) INCLUDE (Id, OwnerToken);

CREATE INDEX [IX_{plain outbox}_DueTime] ON {outbox} (DueTimeUtc) WHERE DueTimeUtc IS NOT NULL;

-- In the order of a claim, which takes from its start and locks only what it takes.
CREATE INDEX [IX_{plain outbox}_Claim] ON {outbox} (NextAttemptAt) INCLUDE (LockedUntil) WHERE Status < 2;

-- Settling finds its messages here.
CREATE UNIQUE INDEX [UX_{plain outbox}_Live] ON {outbox} (Id) WHERE Status < 2;

CREATE INDEX [IX_{plain outbox}_Dead] ON {outbox} (Id) INCLUDE (ProcessedAt, Topic, CorrelationId) WHERE Status = 3;

CREATE INDEX [IX_{plain outbox}_Done] ON {outbox} (ProcessedAt) WHERE Status = 2;

CREATE INDEX [IX_{plain outbox}_Order] ON {outbox} (IdOrder);

-- Joins know messages by this id.
CREATE INDEX [IX_{plain outbox}_Message] ON {outbox} (MessageId);
