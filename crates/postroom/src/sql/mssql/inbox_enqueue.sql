-- The number of rows is the outcome, so that a caller's transaction learns it without decoding a row: see the
-- procedure for its meaning.
EXEC {inbox+_Enqueue}
    @Id = @P1, @Source = @P2, @MessageId = @P3, @Topic = @P4, @Payload = @P5, @Hash = @P6, @DueMicroseconds = @P7,
    @CorrelationId = @P8, @Headers = @P9
