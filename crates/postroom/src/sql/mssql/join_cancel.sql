-- @P1 join id. Returns 1 cancelled, 0 it had finished before, -1 unknown.
EXEC {join+_Cancel} @JoinId = @P1
