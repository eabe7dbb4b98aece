-- @P1 source, @P2 message id, @P3 state, @P4 worker. Returns 0 unknown, 1 moved, 2 left as it was.
EXEC {inbox+_Mark} @Source = @P1, @MessageId = @P2, @State = @P3, @Worker = @P4
