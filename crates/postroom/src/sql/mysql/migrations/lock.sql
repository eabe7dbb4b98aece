-- Whoever deploys the same tables at the same time waits here. The lock is the server's, so it names the
-- database too; it is gone when its connection is. 1 when it was had.
SELECT GET_LOCK(CONCAT('postroom ', MD5(CONCAT(DATABASE(), '.', '{plain outbox}'))), 60);
