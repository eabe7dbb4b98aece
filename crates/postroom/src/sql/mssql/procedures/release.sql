-- Hands the messages that @OwnerToken still holds among @Ids, a JSON array, back as if they had never been
-- claimed: ready at once, no attempt and no delivery counted. For a worker that stops. Returns the ids that
-- changed.
IF OBJECT_ID(N'{queue+_Release}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Release} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Release}
    @OwnerToken uniqueidentifier,
    @Ids nvarchar(max)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {given}
    INSERT INTO @Given (Id, OwnerToken)
    SELECT CAST(i.[value] AS uniqueidentifier), @OwnerToken FROM OPENJSON(@Ids) AS i;
    {release}
    SET NOCOUNT OFF;
    SELECT Id FROM @Settled;
END;
GO
