-- Hands what is held among @Given back for a later attempt. What changed is in @Settled then.
    -- A redelivery may have moved the due time while the message was leased: never before it.
    UPDATE q
    SET {set_ready}
        OwnerToken = NULL,
        LockedUntil = NULL,
        {attempts} = q.{attempts} + 1,
        DeferralCount = q.DeferralCount + COALESCE(s.Deferred, 0),
        LastAttemptAt = SYSUTCDATETIME(),
        LastError = COALESCE(s.Error, q.LastError),
        {set_backoff}
        NextAttemptAt = CASE WHEN q.DueTimeUtc > again.Time THEN q.DueTimeUtc ELSE again.Time END
    OUTPUT inserted.Sequence, inserted.Id, {inserted_message} INTO @Settled (Sequence, Id, MessageId)
    FROM @Given AS s
    INNER LOOP JOIN {queue} AS q WITH (INDEX ({live_index}), ROWLOCK) ON q.Id = s.Id
    CROSS APPLY (
        SELECT COALESCE(s.Delay, CAST(1000000 AS bigint) * CASE WHEN q.{attempts} < 5 THEN POWER(2, q.{attempts} + 1) ELSE 60 END)
            AS Delay) AS backoff
    CROSS APPLY (SELECT {after_backoff} AS Time) AS again
    WHERE {live} AND q.OwnerToken = s.OwnerToken;
    {wake_completed}
