-- @P1 source, @P2 message id, @P3 hash or NULL. Returns 1 if done, plus 2 if the hash differs.
EXEC {inbox+_AlreadyProcessed} @Source = @P1, @MessageId = @P2, @Hash = @P3
