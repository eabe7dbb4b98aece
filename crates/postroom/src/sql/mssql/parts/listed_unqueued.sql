UNION ALL
    SELECT *
    FROM (
        SELECT TOP ({limit}) q.*, {code} AS Code
        FROM {inbox} AS q
        WHERE @P10 = 1
          AND q.Id IS NULL
          AND {asked}
          AND @P2 IS NULL
          AND @P3 IS NULL
          AND (@P4 IS NULL OR q.FirstSeenUtc <= {older})
          AND (@P5 IS NULL OR q.FirstSeenUtc > {newer}){of_source}
          AND (@P11 IS NULL
               OR {first_seen} {beyond} @P11
               OR ({first_seen} = @P11 AND q.KeyHash {beyond} {after_key_hash}))
        ORDER BY {first_seen} {direction}, q.KeyHash {direction}) AS unqueued
