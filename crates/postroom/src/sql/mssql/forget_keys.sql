-- Forgets keys older than @P1 microseconds, or made before @P2 (microseconds since 1970), at most @P3,
-- unless their message is unfinished or dead. Returns how many went.
SET NOCOUNT ON;
WITH doomed AS (
    SELECT TOP (@P3) k.KeyHash
    FROM {outbox+Key} AS k WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE k.CreatedAt < COALESCE({second_time}, {first_ago})
      AND NOT EXISTS (SELECT 1 FROM {outbox} AS q WHERE q.Id = k.Id AND q.Status < 2)
      AND NOT EXISTS (SELECT 1 FROM {outbox} AS q WHERE q.Id = k.Id AND q.Status = 3)
    ORDER BY k.CreatedAt)
DELETE FROM doomed;
SELECT CAST(@@ROWCOUNT AS bigint) AS Forgotten
