-- Enqueues one message from T-SQL, inside whatever transaction is open; returns its work item id.
IF OBJECT_ID(N'{outbox+_Enqueue}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {outbox+_Enqueue} AS RETURN 0');
GO
ALTER PROCEDURE {outbox+_Enqueue}
    @Topic nvarchar(510),
    @Payload nvarchar(max),
    @CorrelationId nvarchar(510) = NULL,
    @DueTimeUtc datetimeoffset(7) = NULL,
    @Headers nvarchar(max) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @Id uniqueidentifier = {new_id};
    INSERT INTO {outbox} (Id, MessageId, Topic, Payload, CorrelationId, Headers, DueTimeUtc, NextAttemptAt)
    VALUES (@Id, @Id, @Topic, @Payload, NULLIF(@CorrelationId, N''), @Headers, @DueTimeUtc,
            CASE WHEN @DueTimeUtc > SYSUTCDATETIME() THEN @DueTimeUtc ELSE SYSUTCDATETIME() END);
    SELECT @Id AS Id;
END;
GO
