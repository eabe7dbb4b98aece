-- @P1 join id, @P2 message id, @P3 member status: 1 completed, 2 failed.
EXEC {join+_Report} @JoinId = @P1, @MessageId = @P2, @Status = @P3
