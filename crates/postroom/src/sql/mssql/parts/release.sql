-- Hands what is held among @Given back as if it had never been claimed. What changed is in @Settled then.
    UPDATE q
    SET {set_ready}
        OwnerToken = NULL,
        LockedUntil = NULL,
        DeliveryCount = CASE WHEN q.DeliveryCount > 0 THEN q.DeliveryCount - 1 ELSE 0 END
    OUTPUT inserted.Sequence, inserted.Id, {inserted_message} INTO @Settled (Sequence, Id, MessageId)
    FROM @Given AS s
    INNER LOOP JOIN {queue} AS q WITH (INDEX ({live_index}), ROWLOCK) ON q.Id = s.Id
    WHERE {live} AND q.OwnerToken = s.OwnerToken;
