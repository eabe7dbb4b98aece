-- Enqueues a message once per @IdempotencyKey, inside whatever transaction is open. @Hash is a hash of what the
-- caller means by the same message. @DueMicroseconds counts since 1970. Returns the work item and the message
-- that stand under the key, and 0 when they are new, 1 when they were there, 2 when they were there with
-- another hash. Who comes second waits for the first to commit, and then finds its message.
IF OBJECT_ID(N'{outbox+_EnqueueOnce}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {outbox+_EnqueueOnce} AS RETURN 0');
GO
ALTER PROCEDURE {outbox+_EnqueueOnce}
    @IdempotencyKey nvarchar(510),
    @Hash varbinary(64),
    @Id uniqueidentifier,
    @MessageId uniqueidentifier,
    @Topic nvarchar(510),
    @Payload nvarchar(max),
    @Headers nvarchar(max) = NULL,
    @CorrelationId nvarchar(510) = NULL,
    @DueMicroseconds bigint = NULL,
    @Joins nvarchar(max) = N'[]'
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @KeyHash binary(32) = HASHBYTES('SHA2_256', CAST(@IdempotencyKey AS varbinary(1020)));
    DECLARE @Due datetime2(7) = {due};
    DECLARE @KnownHash varbinary(64);
    DECLARE @Outcome int = 0;
    BEGIN TRANSACTION;
    SELECT @Id = k.Id, @MessageId = k.MessageId, @KnownHash = k.Hash
    FROM {outbox+Key} AS k WITH (UPDLOCK, SERIALIZABLE, ROWLOCK)
    WHERE k.KeyHash = @KeyHash;
    IF @KnownHash IS NULL
    BEGIN
        INSERT INTO {outbox+Key} (IdempotencyKey, Hash, Id, MessageId)
        VALUES (@IdempotencyKey, @Hash, @Id, @MessageId);
        INSERT INTO {outbox} (Id, MessageId, Topic, Payload, Headers, CorrelationId, DueTimeUtc, NextAttemptAt)
        VALUES (@Id, @MessageId, @Topic, @Payload, @Headers, NULLIF(@CorrelationId, N''), @Due,
                CASE WHEN @Due > SYSUTCDATETIME() THEN @Due ELSE SYSUTCDATETIME() END);
        INSERT INTO {join_member} (JoinId, OutboxMessageId)
        SELECT DISTINCT CAST(j.[value] AS uniqueidentifier), @MessageId
        FROM OPENJSON(@Joins) AS j
        WHERE NOT EXISTS (
            SELECT 1 FROM {join_member} AS known
            WHERE known.JoinId = CAST(j.[value] AS uniqueidentifier) AND known.OutboxMessageId = @MessageId);
    END
    ELSE
        SET @Outcome = CASE WHEN @KnownHash = @Hash AND DATALENGTH(@KnownHash) = DATALENGTH(@Hash) THEN 1 ELSE 2 END;
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT @Id AS WorkItem, @MessageId AS Message, @Outcome AS Outcome;
END;
GO
