-- Forgets up to @BatchSize done messages that were last seen at least @AgeMicroseconds ago: after this, the same
-- (source, message id) counts as new. Returns how many. Seen, processing and dead ones stay.
IF OBJECT_ID(N'{inbox+_Forget}', N'P') IS NULL
    EXEC (N'CREATE PROCEDURE {inbox+_Forget} AS RETURN 0');
GO
ALTER PROCEDURE {inbox+_Forget}
    @AgeMicroseconds bigint,
    @BatchSize bigint
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    DELETE TOP (@BatchSize) q
    FROM {inbox} AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE {inbox_done} AND q.LastSeenUtc < {age_ago};
    SELECT CAST(@@ROWCOUNT AS bigint) AS Forgotten;
END;
GO
