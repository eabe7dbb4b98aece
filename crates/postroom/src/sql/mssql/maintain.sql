-- The tables need no upkeep beyond what the server does by itself.
SELECT CAST(1 AS bigint) AS Maintained
