q.ctid = ANY (p_places) AND q.xmin = ANY (v_transactions) AND q.owner_token = ANY (p_claimed_by)
