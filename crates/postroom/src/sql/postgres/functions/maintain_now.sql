-- The archive's first partitions.
SELECT {outbox+_maintain}(), {inbox+_maintain}();
