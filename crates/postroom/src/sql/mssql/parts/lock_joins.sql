-- Two counts would lock joins twice, each time in order, which is no order: so all are locked first.
    INSERT INTO @Counted (JoinId)
    SELECT m.JoinId
    FROM (SELECT MessageId FROM @Completed UNION SELECT MessageId FROM @Died) AS s
    INNER LOOP JOIN {join_member} AS m WITH (INDEX ({member_index}), UPDLOCK, ROWLOCK) ON m.OutboxMessageId = s.MessageId
    WHERE m.Status = 0;
    INSERT INTO @Steps (JoinId, Steps)
    SELECT JoinId, COUNT(*) FROM @Counted GROUP BY JoinId;
    DECLARE @Locked int = (
        SELECT COUNT(*)
        FROM @Steps AS s
        INNER LOOP JOIN {join} AS j WITH (UPDLOCK, ROWLOCK) ON j.JoinId = s.JoinId);
