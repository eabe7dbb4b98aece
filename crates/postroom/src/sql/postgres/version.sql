-- Tells which write of the table this is: its file, which is another after VACUUM FULL, and the transaction. It is
-- asked once, when the rows are claimed already.
(SELECT (pg_relation_filenode('{queue}')::bigint << 32) | (pg_current_xact_id_if_assigned()::text::bigint & 4294967295))
