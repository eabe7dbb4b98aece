-- @P1 join id, @P2 list what follows this message id or NULL, @P3 at most so many.
SELECT TOP (@P3) m.OutboxMessageId, m.Status, DATEDIFF_BIG(MICROSECOND, '19700101', m.CreatedUtc) AS CreatedUtc
FROM {join_member} AS m
CROSS APPLY (SELECT {member_order} AS MessageOrder) AS placed
WHERE m.JoinId = @P1 AND (@P2 IS NULL OR placed.MessageOrder > {second_id})
ORDER BY placed.MessageOrder
