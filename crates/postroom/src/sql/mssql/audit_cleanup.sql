-- Deletes entries older than @P1 microseconds, at most @P2, oldest first. Returns how many went.
SET NOCOUNT ON;
WITH doomed AS (
    SELECT TOP (@P2) a.Id
    FROM {outbox+Audit} AS a WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE a.RecordedAt < {first_ago}
    ORDER BY a.RecordedAt)
DELETE FROM doomed;
SELECT CAST(@@ROWCOUNT AS bigint) AS Removed
