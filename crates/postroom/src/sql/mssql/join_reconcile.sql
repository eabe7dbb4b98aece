-- @P1 join id. The first row says how many steps were counted, -1 for an unknown join.
EXEC {join+_Reconcile} @JoinId = @P1
