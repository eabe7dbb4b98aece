-- How many bytes the server takes at once from whoever connects now. A connection keeps what was allowed when it
-- was made.
SELECT @@GLOBAL.max_allowed_packet
