-- What is known of a connection when it is made: by which number the server knows it, and how many bytes
-- the server takes at once.
SELECT CONNECTION_ID(), @@max_allowed_packet
