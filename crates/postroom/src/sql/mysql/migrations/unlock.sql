SELECT RELEASE_LOCK(CONCAT('postroom ', LEFT(SHA2(CONCAT(DATABASE(), '.', '{plain outbox}'), 256), 32)));
