-- A wait message (@P1 its id, @P2 topic, @P3 payload, @P4 headers) and its entry in the wake-up table of the
-- join @P5. An unknown join is a foreign key violation. Returns one row.
EXEC {outbox+_EnqueueWait} @Id = @P1, @Topic = @P2, @Payload = @P3, @Headers = @P4, @JoinId = @P5
