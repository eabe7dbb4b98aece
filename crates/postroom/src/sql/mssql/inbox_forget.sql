-- Done messages last seen longer than @P1 microseconds ago, at most @P2.
EXEC {inbox+_Forget} @AgeMicroseconds = @P1, @BatchSize = @P2
