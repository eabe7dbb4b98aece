SELECT RELEASE_LOCK(CONCAT('postroom ', MD5(CONCAT(DATABASE(), '.', '{plain outbox}'))));
