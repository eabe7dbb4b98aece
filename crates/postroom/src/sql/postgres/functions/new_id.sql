-- A version 7 UUID: it begins with the time, so that ids grow and the archive's BRIN index finds them.
CREATE OR REPLACE FUNCTION {outbox+_new_id}()
RETURNS uuid
LANGUAGE sql
AS $$
    SELECT encode(set_byte(b, 6, (get_byte(b, 6) & 15) | 112), 'hex')::uuid
    FROM overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6) AS b
$$;
