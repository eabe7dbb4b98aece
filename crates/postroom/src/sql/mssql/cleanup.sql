-- Done messages older than @P1 microseconds, or processed before @P2 (microseconds since 1970), at most @P3
-- rows in this transaction.
DECLARE @Before datetime2(7) = COALESCE({second_time}, {first_ago});
EXEC {queue+_Cleanup} @Before = @Before, @BatchSize = @P3
