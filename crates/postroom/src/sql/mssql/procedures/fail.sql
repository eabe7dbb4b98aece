-- Marks the messages that @OwnerToken still holds among @Ids, a JSON array, as dead with their error, and
-- counts them as failed steps of their joins. @Errors holds one error per id; the last one serves the rest.
-- Returns and locks as the ack procedure does. An id that died before and was enqueued again dies again: the
-- later death counts.
IF OBJECT_ID(N'{queue+_Fail}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Fail} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Fail}
    @OwnerToken uniqueidentifier,
    @Ids nvarchar(max),
    @Errors nvarchar(max),
    @Worker nvarchar(200) = NULL
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {given}
    {join_variables}
    DECLARE @Last int = (SELECT MAX(CAST([key] AS int)) FROM OPENJSON(@Errors));
    INSERT INTO @Given (Id, OwnerToken, Error)
    SELECT CAST(i.[value] AS uniqueidentifier), @OwnerToken, e.[value]
    FROM OPENJSON(@Ids) AS i
    LEFT JOIN OPENJSON(@Errors) AS e
        ON CAST(e.[key] AS int) = CASE WHEN CAST(i.[key] AS int) < @Last THEN CAST(i.[key] AS int) ELSE @Last END;
    BEGIN TRANSACTION;
    {fail}
    {count_failed}
    COMMIT TRANSACTION;
    SET NOCOUNT OFF;
    SELECT Id, CAST(NULL AS uniqueidentifier) AS JoinId, NULL AS JoinStatus, NULL AS CompletedSteps, NULL AS FailedSteps, NULL AS ExpectedSteps
    FROM @Settled{finished_rows};
END;
GO
