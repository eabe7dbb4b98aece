-- Whoever deploys the same tables at the same time waits here. The lock is the server's, so it names the
-- database too; it is gone when its connection is. 1 when it was had. A name has 64 characters at most, and
-- MySQL has no MD5 since 9.6.
SELECT GET_LOCK(CONCAT('postroom ', LEFT(SHA2(CONCAT(DATABASE(), '.', '{plain outbox}'), 256), 32)), 60);
