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
        ORDER BY q.FirstSeenUtc {direction}) AS unqueued
