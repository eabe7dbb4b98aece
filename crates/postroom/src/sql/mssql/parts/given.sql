DECLARE @Given TABLE (
        Id uniqueidentifier NOT NULL,
        OwnerToken uniqueidentifier NOT NULL,
        Delay bigint NULL,
        Error nvarchar(max) NULL,
        Deferred int NULL,
        PRIMARY KEY (Id, OwnerToken) WITH (IGNORE_DUP_KEY = ON));
    DECLARE @Settled TABLE (Sequence bigint NOT NULL PRIMARY KEY, Id uniqueidentifier NOT NULL, MessageId uniqueidentifier NULL);
