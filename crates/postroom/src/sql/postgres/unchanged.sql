q.ctid = ANY (v_places) AND q.xmin = v_transaction AND q.owner_token = v_owner
