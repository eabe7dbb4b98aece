-- Messages and their join memberships in one statement: member i is message @P8[i] in join @P9[i].
-- An unknown join is a foreign key violation and undoes the whole statement.
EXEC {outbox+_EnqueueMany}
    @Ids = @P1, @MessageIds = @P2, @Topics = @P3, @Payloads = @P4, @Headers = @P5, @CorrelationIds = @P6, @DueTimes = @P7,
    @Members = @P8, @Joins = @P9
