-- Acks one message (@AckedId in a JSON array) and enqueues others in the same transaction, as the procedure
-- that enqueues many does, but only if the ack changed something: a lost lease leaves nothing behind. Returns
-- as ack does.
IF OBJECT_ID(N'{queue+_AckAndEnqueue}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_AckAndEnqueue} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_AckAndEnqueue}
    @OwnerToken uniqueidentifier,
    @AckedId nvarchar(max),
    @Worker nvarchar(200),
    @Keep bit,
    @Ids nvarchar(max),
    @MessageIds nvarchar(max),
    @Topics nvarchar(max),
    @Payloads nvarchar(max),
    @Headers nvarchar(max),
    @CorrelationIds nvarchar(max),
    @DueTimes nvarchar(max),
    @Members nvarchar(max) = NULL,
    @Joins nvarchar(max) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DECLARE @Acked int;
    BEGIN TRANSACTION;
    EXEC @Acked = {queue+_Ack} @OwnerToken = @OwnerToken, @Ids = @AckedId, @Worker = @Worker, @Keep = @Keep;
    IF @Acked > 0
        EXEC {outbox+_EnqueueMany}
            @Ids = @Ids, @MessageIds = @MessageIds, @Topics = @Topics, @Payloads = @Payloads, @Headers = @Headers,
            @CorrelationIds = @CorrelationIds, @DueTimes = @DueTimes, @Members = @Members, @Joins = @Joins;
    COMMIT TRANSACTION;
END;
GO
