-- Extends the leases that @OwnerToken holds among @Ids, a JSON array, and that have not expired. Returns the
-- ids that changed; an id that is missing has lost its lease.
IF OBJECT_ID(N'{queue+_Renew}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Renew} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Renew}
    @OwnerToken uniqueidentifier,
    @Ids nvarchar(max),
    @LeaseMicroseconds bigint
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    {given}
    DECLARE @Now datetime2(7);
    INSERT INTO @Given (Id, OwnerToken)
    SELECT CAST(i.[value] AS uniqueidentifier), @OwnerToken FROM OPENJSON(@Ids) AS i;
    SET @Now = SYSUTCDATETIME();
    UPDATE q
    SET LockedUntil = {lease_end}
    OUTPUT inserted.Sequence, inserted.Id INTO @Settled (Sequence, Id)
    FROM @Given AS s
    INNER LOOP JOIN {queue} AS q WITH (INDEX ({live_index}), ROWLOCK) ON q.Id = s.Id
    WHERE {live} AND q.OwnerToken = s.OwnerToken AND q.LockedUntil >= SYSUTCDATETIME();
    SET NOCOUNT OFF;
    SELECT Id FROM @Settled;
END;
GO
