+ (SELECT COUNT_BIG(*)
       FROM {inbox} AS q
       WHERE q.Id IS NULL
         AND {asked}
         AND @P2 IS NULL
         AND @P3 IS NULL
         AND (@P4 IS NULL OR q.FirstSeenUtc <= {older})
         AND (@P5 IS NULL OR q.FirstSeenUtc > {newer}){of_source})
