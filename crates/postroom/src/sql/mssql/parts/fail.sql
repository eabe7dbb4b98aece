-- Moves what is held among @Given to dead, with its error. What changed is in @Settled then.
    UPDATE q
    SET {set_dead},
        ProcessedAt = SYSUTCDATETIME(),
        ProcessedBy = @Worker,
        LastError = COALESCE(s.Error, q.LastError),
        OwnerToken = NULL,
        LockedUntil = NULL
    OUTPUT inserted.Sequence, inserted.Id, {inserted_message} INTO @Settled (Sequence, Id, MessageId)
    FROM @Given AS s
    INNER LOOP JOIN {queue} AS q WITH (INDEX ({live_index}), ROWLOCK) ON q.Id = s.Id
    WHERE {live} AND q.OwnerToken = s.OwnerToken;
    {bury}
