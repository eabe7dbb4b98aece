-- The state of the file: SQLite's version, journal mode, pages, bytes of a page, pages that are free, and
-- its path, empty for a database in memory.
SELECT sqlite_version(), j.journal_mode, p.page_count, s.page_size, f.freelist_count, coalesce(d.file, '')
FROM pragma_journal_mode AS j, pragma_page_count AS p, pragma_page_size AS s, pragma_freelist_count AS f,
     pragma_database_list AS d
WHERE d.name = 'main'
