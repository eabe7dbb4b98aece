-- Whether the server knows the connection with the number ?1. One's own are shown to everybody.
SELECT 1 FROM information_schema.processlist WHERE id = ?1
