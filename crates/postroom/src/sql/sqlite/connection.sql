-- What a writing connection of ours needs beside the schema: a list of the rows that a replay, a purge
-- or a cleanup has chosen. It lives in memory, and each of them starts with an empty one.
CREATE TEMP TABLE IF NOT EXISTS postroom_chosen (
    seq INTEGER PRIMARY KEY,
    message_id BLOB NOT NULL
);
