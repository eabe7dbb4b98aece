-- Enqueued, done, died and received since the server's statistics began, as one row. What leaves a live
-- table is done or dead, so done needs no look at the archive, whose oldest days are dropped. The server
-- counts rows of transactions that were rolled back too, and tells up to some seconds late.
SELECT
    coalesce(sum(n_tup_ins) FILTER (WHERE relid = '{outbox}'::regclass), 0)::bigint,
    greatest(
        coalesce(sum(n_tup_del) FILTER (WHERE relid IN ('{outbox}'::regclass, '{inbox}'::regclass)), 0)
        - coalesce(sum(n_tup_ins) FILTER (WHERE relid IN ('{outbox+_dead}'::regclass, '{inbox+_dead}'::regclass)), 0),
        0)::bigint,
    coalesce(sum(n_tup_ins) FILTER (WHERE relid IN ('{outbox+_dead}'::regclass, '{inbox+_dead}'::regclass)), 0)::bigint,
    coalesce(sum(n_tup_ins) FILTER (WHERE relid = '{inbox}'::regclass), 0)::bigint
FROM pg_stat_user_tables
WHERE relid IN ('{outbox}'::regclass, '{inbox}'::regclass, '{outbox+_dead}'::regclass, '{inbox+_dead}'::regclass)
