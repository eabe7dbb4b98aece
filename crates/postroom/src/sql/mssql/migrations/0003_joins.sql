-- Joins refer to outbox messages by message id alone: there is no foreign key to the outbox and no
-- join column on it. Status: 0 pending, 1 completed, 2 failed, 3 cancelled (of a join); 0 to 2 of a member.
CREATE TABLE {join} (
    JoinId uniqueidentifier NOT NULL DEFAULT NEWID(),
    GroupingKey nvarchar(510) COLLATE Latin1_General_100_BIN2 NULL,
    ExpectedSteps int NOT NULL,
    CompletedSteps int NOT NULL DEFAULT 0,
    FailedSteps int NOT NULL DEFAULT 0,
    Status tinyint NOT NULL DEFAULT 0,
    CreatedUtc datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    LastUpdatedUtc datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    Metadata nvarchar(max) NULL,
    JoinOrder AS {join_order} PERSISTED,
    CONSTRAINT [PK_{plain join}] PRIMARY KEY CLUSTERED (JoinId),
    CONSTRAINT [CK_{plain join}_Expected] CHECK (ExpectedSteps > 0),
    CONSTRAINT [CK_{plain join}_Counted] CHECK (CompletedSteps >= 0 AND FailedSteps >= 0 AND CompletedSteps + FailedSteps <= ExpectedSteps)
);

CREATE INDEX [IX_{plain join}_GroupingKey] ON {join} (GroupingKey) WHERE GroupingKey IS NOT NULL;

CREATE INDEX [IX_{plain join}_Order] ON {join} (JoinOrder);

CREATE TABLE {join_member} (
    JoinId uniqueidentifier NOT NULL,
    OutboxMessageId uniqueidentifier NOT NULL,
    Status tinyint NOT NULL DEFAULT 0,
    CreatedUtc datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    CONSTRAINT [PK_{plain join_member}] PRIMARY KEY (JoinId, OutboxMessageId),
    CONSTRAINT [FK_{plain join_member}_Join] FOREIGN KEY (JoinId) REFERENCES {join} (JoinId) ON DELETE CASCADE
);

ALTER TABLE {join_member} SET (LOCK_ESCALATION = DISABLE);

-- An ack finds its members here.
CREATE INDEX [IX_{plain join_member}_OutboxMessageId] ON {join_member} (OutboxMessageId);

-- Which wait messages the completing transaction has to wake.
CREATE TABLE {join+Wait} (
    JoinId uniqueidentifier NOT NULL,
    MessageId uniqueidentifier NOT NULL,
    CONSTRAINT [PK_{plain join}Wait] PRIMARY KEY (JoinId, MessageId),
    CONSTRAINT [FK_{plain join}Wait_Join] FOREIGN KEY (JoinId) REFERENCES {join} (JoinId) ON DELETE CASCADE
);

CREATE INDEX [IX_{plain join}Wait_Message] ON {join+Wait} (MessageId);
