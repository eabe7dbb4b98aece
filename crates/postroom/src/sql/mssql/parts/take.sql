-- Leases the first messages that are ready, from @From on, until @Claimed holds @BatchSize.
    WITH ready AS (
        SELECT TOP (@BatchSize - @Count) {claimed_columns}
        FROM {queue} AS q WITH (INDEX ({claim_index}), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
        WHERE {live}
          AND q.NextAttemptAt >= @From
          AND q.NextAttemptAt <= @Now
          AND (q.LockedUntil IS NULL OR q.LockedUntil < @Now)
        ORDER BY q.NextAttemptAt)
    UPDATE ready
    SET {set_in_progress}
        OwnerToken = @OwnerToken,
        LockedUntil = @Until,
        DeliveryCount = DeliveryCount + 1
    OUTPUT inserted.Sequence INTO @Claimed (Sequence);
    SET @Count = @Count + @@ROWCOUNT;
