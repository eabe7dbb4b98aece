-- Whoever deploys the same tables at the same time waits here for the end of our transaction. @P1 names the
-- tables.
DECLARE @Granted int;
EXEC @Granted = sys.sp_getapplock @Resource = @P1, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 300000;
IF @Granted < 0
    THROW 50000, N'the deployment lock could not be had', 1;
