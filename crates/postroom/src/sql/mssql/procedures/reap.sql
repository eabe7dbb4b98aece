-- Frees every expired lease and returns how many. Attempts are not counted: nobody tried and failed.
IF OBJECT_ID(N'{queue+_Reap}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {queue+_Reap} AS RETURN 0');
GO
ALTER PROCEDURE {queue+_Reap}
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    UPDATE q
    SET {set_ready}
        OwnerToken = NULL,
        LockedUntil = NULL
    FROM {queue} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE {live} AND q.LockedUntil < SYSUTCDATETIME();
    SELECT CAST(@@ROWCOUNT AS bigint) AS Reaped;
END;
GO
