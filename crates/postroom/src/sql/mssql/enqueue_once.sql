-- One message under the key @P1, with the hash @P2. @P9 is the due time in microseconds since 1970, or
-- NULL; @P10 the joins. Returns work item, message, and 0 new, 1 there before, 2 there with another hash.
EXEC {outbox+_EnqueueOnce}
    @IdempotencyKey = @P1, @Hash = @P2, @Id = @P3, @MessageId = @P4, @Topic = @P5, @Payload = @P6, @Headers = @P7,
    @CorrelationId = @P8, @DueMicroseconds = @P9, @Joins = @P10
