-- Any number of messages in one statement: the arrays run in parallel, one element per message.
EXEC {outbox+_EnqueueMany}
    @Ids = @P1, @MessageIds = @P2, @Topics = @P3, @Payloads = @P4, @Headers = @P5, @CorrelationIds = @P6, @DueTimes = @P7
