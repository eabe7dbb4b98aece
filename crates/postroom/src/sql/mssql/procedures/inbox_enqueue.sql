-- Takes an inbound message in, once per (@Source, @MessageId). The number of rows that it returns is the
-- outcome, so that a caller's transaction learns it without decoding a row: 0 already done, 2 new, 4 content
-- replaced, 6 content replaced but the message stays dead; plus 1 when the hash differs from the stored one.
-- A leased message keeps its lease, attempts and backoff. @DueMicroseconds counts since 1970.
IF OBJECT_ID(N'{inbox+_Enqueue}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {inbox+_Enqueue} AS RETURN 0');
GO
ALTER PROCEDURE {inbox+_Enqueue}
    @Id uniqueidentifier,
    @Source nvarchar(510),
    @MessageId nvarchar(510),
    @Topic nvarchar(510),
    @Payload nvarchar(max),
    @Hash varbinary(max) = NULL,
    @DueMicroseconds bigint = NULL,
    @CorrelationId nvarchar(510) = NULL,
    @Headers nvarchar(max) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @Key binary(32) = {key_hash};
    DECLARE @Due datetime2(7) = {due};
    DECLARE @Sequence bigint;
    DECLARE @Status varchar(20);
    DECLARE @WorkItem uniqueidentifier;
    DECLARE @Known varbinary(max);
    DECLARE @Outcome int;
    BEGIN TRANSACTION;
    SELECT @Sequence = i.Sequence, @Status = i.Status, @WorkItem = i.Id, @Known = i.Hash
    FROM {inbox} AS i WITH (INDEX ({key_index}), UPDLOCK, SERIALIZABLE, ROWLOCK)
    WHERE i.KeyHash = @Key;
    IF @Status IS NULL
    BEGIN
        INSERT INTO {inbox} (Id, Source, MessageId, Topic, Payload, Hash, CorrelationId, Headers, DueTimeUtc, Status, NextAttemptAt)
        VALUES (@Id, @Source, @MessageId, @Topic, @Payload, @Hash, NULLIF(@CorrelationId, N''), @Headers, @Due, 'Processing',
                CASE WHEN @Due > SYSUTCDATETIME() THEN @Due ELSE SYSUTCDATETIME() END);
        SET @Outcome = 2;
    END
    ELSE IF @Status = 'Done'
    BEGIN
        UPDATE {inbox} SET LastSeenUtc = SYSUTCDATETIME() WHERE Sequence = @Sequence;
        SET @Outcome = 0;
    END
    ELSE IF @Status = 'Dead'
    BEGIN
        UPDATE {inbox}
        SET Topic = @Topic, Payload = @Payload, CorrelationId = NULLIF(@CorrelationId, N''), Headers = @Headers, DueTimeUtc = @Due,
            Hash = @Hash, LastSeenUtc = SYSUTCDATETIME()
        WHERE Sequence = @Sequence;
        SET @Outcome = 6;
    END
    ELSE IF @WorkItem IS NOT NULL
    BEGIN
        UPDATE i
        SET Topic = @Topic, Payload = @Payload, CorrelationId = NULLIF(@CorrelationId, N''), Headers = @Headers, DueTimeUtc = @Due,
            Hash = @Hash, LastSeenUtc = SYSUTCDATETIME(),
            NextAttemptAt = CASE WHEN @Due > ready.Time THEN @Due ELSE ready.Time END
        FROM {inbox} AS i
        CROSS APPLY (SELECT CASE WHEN i.BackoffUntil > i.FirstSeenUtc THEN i.BackoffUntil ELSE i.FirstSeenUtc END AS Time) AS ready
        WHERE i.Sequence = @Sequence;
        SET @Outcome = 4;
    END
    ELSE
    BEGIN
        UPDATE {inbox}
        SET Topic = @Topic, Payload = @Payload, CorrelationId = NULLIF(@CorrelationId, N''), Headers = @Headers, DueTimeUtc = @Due,
            Hash = @Hash, LastSeenUtc = SYSUTCDATETIME(), Id = @Id, Status = 'Processing',
            NextAttemptAt = CASE WHEN @Due > SYSUTCDATETIME() THEN @Due ELSE SYSUTCDATETIME() END
        WHERE Sequence = @Sequence;
        SET @Outcome = 2;
    END;
    COMMIT TRANSACTION;
    SET @Outcome = @Outcome + {hash_differs};
    SET NOCOUNT OFF;
    SELECT n.Number FROM (VALUES (1), (2), (3), (4), (5), (6), (7)) AS n (Number) WHERE n.Number <= @Outcome;
END;
GO
