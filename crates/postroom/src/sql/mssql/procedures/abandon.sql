-- Hands the messages that @OwnerToken still holds among @Ids, a JSON array, back for a later attempt. One delay
-- (microseconds), error and deferral flag (0 or 1) per id, each a JSON array; the last one serves the rest. A
-- null delay is the default backoff, min(2^attempts, 60) seconds with attempts counted after this one. Returns
-- the ids that changed.
-- A wait message whose join has finished meanwhile is ready at once. The join is read past a lock: whoever
-- holds one is about to finish the join and will wake the message itself, as soon as we have let it go.
IF OBJECT_ID(N'{queue+_Abandon}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Abandon} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Abandon}
    @OwnerToken uniqueidentifier,
    @Ids nvarchar(max),
    @Delays nvarchar(max) = N'[null]',
    @Errors nvarchar(max) = N'[null]',
    @Deferred nvarchar(max) = N'[0]'
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {given}
    DECLARE @LastDelay int = (SELECT MAX(CAST([key] AS int)) FROM OPENJSON(@Delays));
    DECLARE @LastError int = (SELECT MAX(CAST([key] AS int)) FROM OPENJSON(@Errors));
    DECLARE @LastDeferred int = (SELECT MAX(CAST([key] AS int)) FROM OPENJSON(@Deferred));
    INSERT INTO @Given (Id, OwnerToken, Delay, Error, Deferred)
    SELECT CAST(i.[value] AS uniqueidentifier), @OwnerToken, CAST(d.[value] AS bigint), e.[value], CAST(f.[value] AS int)
    FROM OPENJSON(@Ids) AS i
    LEFT JOIN OPENJSON(@Delays) AS d
        ON CAST(d.[key] AS int) = CASE WHEN CAST(i.[key] AS int) < @LastDelay THEN CAST(i.[key] AS int) ELSE @LastDelay END
    LEFT JOIN OPENJSON(@Errors) AS e
        ON CAST(e.[key] AS int) = CASE WHEN CAST(i.[key] AS int) < @LastError THEN CAST(i.[key] AS int) ELSE @LastError END
    LEFT JOIN OPENJSON(@Deferred) AS f
        ON CAST(f.[key] AS int) = CASE WHEN CAST(i.[key] AS int) < @LastDeferred THEN CAST(i.[key] AS int) ELSE @LastDeferred END;
    BEGIN TRANSACTION;
    {abandon}
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT Id FROM @Settled;
END;
GO
