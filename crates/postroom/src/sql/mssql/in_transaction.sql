-- Stands before a statement of ours in a caller's transaction, in the same batch: without one it must not run. The
-- caller may have passed over an error that has undone his transaction, and SQL Server goes on without any then:
-- what follows would be committed for itself.
IF @@TRANCOUNT = 0
    THROW 53930, N'postroom was told that a transaction is open, and there is none.', 1;
