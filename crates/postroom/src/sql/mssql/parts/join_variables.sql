DECLARE @Counted TABLE (JoinId uniqueidentifier NOT NULL);
    DECLARE @Steps TABLE (JoinId uniqueidentifier NOT NULL PRIMARY KEY, Steps int NOT NULL);
    DECLARE @Moved TABLE (JoinId uniqueidentifier NOT NULL, Status int NOT NULL, CompletedSteps int NOT NULL, FailedSteps int NOT NULL, ExpectedSteps int NOT NULL);
    DECLARE @Finished TABLE (JoinId uniqueidentifier NOT NULL, Status int NOT NULL, CompletedSteps int NOT NULL, FailedSteps int NOT NULL, ExpectedSteps int NOT NULL);
