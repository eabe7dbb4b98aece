-- Acks one message (@P1 owner, @P2 its id in an array, @P3 worker, @P4 keep) and enqueues others in the same
-- transaction (@P5 to @P13, as enqueue_joined), but only if the ack changed something. Returns as ack does.
EXEC {queue+_AckAndEnqueue}
    @OwnerToken = @P1, @AckedId = @P2, @Worker = @P3, @Keep = @P4, @Ids = @P5, @MessageIds = @P6, @Topics = @P7,
    @Payloads = @P8, @Headers = @P9, @CorrelationIds = @P10, @DueTimes = @P11, @Members = @P12, @Joins = @P13
