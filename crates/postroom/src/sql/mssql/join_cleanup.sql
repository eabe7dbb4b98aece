-- Finished joins last updated longer than @P1 microseconds ago, at most @P2; members go with them, by their
-- foreign key. A join that a message still waits for stays.
SET NOCOUNT ON;
DELETE TOP (@P2) j
FROM {join} AS j WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE j.Status <> 0
  AND j.LastUpdatedUtc < {first_ago}
  AND NOT EXISTS (
      SELECT 1 FROM {join+Wait} AS w JOIN {outbox} AS o ON o.Id = w.MessageId AND o.Status < 2
      WHERE w.JoinId = j.JoinId);
SELECT CAST(@@ROWCOUNT AS bigint) AS Removed
