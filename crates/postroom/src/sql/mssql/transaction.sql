-- Whether a transaction is still open on this connection. An error may have undone it.
SELECT @@TRANCOUNT AS OpenTransactions
