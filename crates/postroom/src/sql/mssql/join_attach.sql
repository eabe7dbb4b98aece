-- @P1 join id, @P2 message id. Returns the state of the message and the status of the join.
EXEC {join+_Attach} @JoinId = @P1, @MessageId = @P2
