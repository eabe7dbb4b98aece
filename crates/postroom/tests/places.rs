//! Acks of PostgreSQL where a claim has left its rows, and what becomes of rows that are there no longer.

#![allow(clippy::unwrap_used, reason = "tests")]

use postroom::{Message, OwnerToken};
use testkit::{Fixture, eventually};
use uuid::Uuid;

/// A claim that its test settles by hand, as the dispatcher does.
struct Placed {
    client: tokio_postgres::Client,
    settle: String,
    owner: Uuid,
    version: i64,
    /// Ids and places.
    claimed: Vec<(Uuid, String)>,
}

impl Placed {
    async fn claim(fixture: &Fixture) -> Self {
        let operations = fixture.options().operations().unwrap();
        let claim = operations
            .iter()
            .find(|operation| operation.name == "outbox claim")
            .unwrap();
        let claim = format!(
            "SELECT id, place::text, version FROM ({}) AS claimed",
            claim.statements[0].sql
        );
        let client = fixture.postgres().await;
        let owner = OwnerToken::new().as_uuid();
        let (hour, batch, from) = (3_600_000_000_i64, 100_i64, None::<i64>);
        let rows = client
            .query(&claim, &[&owner, &hour, &batch, &from, &1_i64])
            .await
            .unwrap();
        let settle = format!(
            "SELECT operation, ids FROM {}('w', true, $1, $2, $3::text[]::tid[], $4, $5, '{{}}', '{{}}', '{{}}', '{{}}', \
             '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')",
            fixture.table("outbox_settle")
        );
        Self {
            client,
            settle,
            owner,
            version: rows[0].get(2),
            claimed: rows.iter().map(|row| (row.get(0), row.get(1))).collect(),
        }
    }

    /// Says how they were acked, and which of them by id.
    async fn ack(&self, claimed: &[(Uuid, String)]) -> (String, Vec<Uuid>) {
        self.ack_beside(claimed, &[]).await
    }

    /// The same, with messages of other claims. Those whose place is not known come last, and have an empty one.
    async fn ack_beside(
        &self,
        claimed: &[(Uuid, String)],
        others: &[(&Placed, &[(Uuid, String)])],
    ) -> (String, Vec<Uuid>) {
        let (mut ids, mut owners, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let (mut versions, mut counts) = (Vec::new(), Vec::new());
        for (claim, claimed) in [(self, claimed)].iter().chain(others) {
            let before = places.len();
            for (id, place) in *claimed {
                ids.push(*id);
                owners.push(claim.owner);
                places.extend((!place.is_empty()).then_some(place.as_str()));
            }
            versions.push(claim.version);
            counts.push(i64::try_from(places.len() - before).unwrap());
        }
        let rows = self
            .client
            .query(&self.settle, &[&ids, &owners, &places, &versions, &counts])
            .await
            .unwrap();
        let how: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        let ids = rows
            .iter()
            .flat_map(|row| row.get::<_, Option<Vec<Uuid>>>(1));
        (how.join(" and "), ids.flatten().collect())
    }
}

/// In one call, with one whose place is not known.
async fn the_messages_of_several_claims_are_acked_where_they_lie(fixture: Fixture) {
    enqueue(&fixture, 3).await;
    let earlier = Placed::claim(&fixture).await;
    enqueue(&fixture, 3).await;
    let later = Placed::claim(&fixture).await;
    let mut handled = later.claimed[1..].to_vec();
    handled[1].1.clear();

    let acked = earlier
        .ack_beside(&earlier.claimed, &[(&later, &handled)])
        .await;
    assert_eq!(acked, ("placed and ack".to_owned(), vec![handled[1].0]));
    assert_eq!(fixture.rows("outbox").await, 1);
    assert_eq!(fixture.rows("outbox_done").await, 5);
    let running = later.claimed[0].0;
    let left = format!("SELECT count(*) FROM {{outbox}} WHERE id = '{running}'");
    assert_eq!(fixture.number(&left).await, 1);
}

/// What was written since its claim is not acked by its place, and nothing beside it is: all are looked for by
/// id, and found if they are still their owner's.
async fn a_row_that_was_written_since_its_claim_is_looked_for_by_its_id(fixture: Fixture) {
    enqueue(&fixture, 9).await;
    let placed = Placed::claim(&fixture).await;
    let [first, renewed, taken] = [
        &placed.claimed[..3],
        &placed.claimed[3..6],
        &placed.claimed[6..],
    ];

    assert_eq!(placed.ack(first).await, ("placed".to_owned(), vec![]));
    assert_eq!(fixture.rows("outbox_done").await, 3);

    let change = |what: &str, id: Uuid| format!("UPDATE {{outbox}} SET {what} WHERE id = '{id}'");
    fixture
        .sql(&change(
            "locked_until = locked_until + interval '1 hour'",
            renewed[1].0,
        ))
        .await;
    let (how, mut ids) = placed.ack(renewed).await;
    ids.sort_unstable();
    let mut expected: Vec<Uuid> = renewed.iter().map(|(id, _)| *id).collect();
    expected.sort_unstable();
    assert_eq!((how.as_str(), ids), ("ack", expected));
    assert_eq!(fixture.rows("outbox_done").await, 6);

    fixture
        .sql(&change("owner_token = gen_random_uuid()", taken[0].0))
        .await;
    let (how, ids) = placed.ack(taken).await;
    assert_eq!((how.as_str(), ids.len()), ("ack", 2));
    assert!(!ids.contains(&taken[0].0));
    assert_eq!(fixture.rows("outbox").await, 1);
    assert_eq!(fixture.rows("outbox_done").await, 8);

    let (how, ids) = placed.ack(taken).await;
    assert_eq!(
        (how.as_str(), ids.len()),
        ("ack", 0),
        "nobody else's message"
    );
    assert_eq!(fixture.rows("outbox").await, 1);
}

/// Where a message was that has moved since, another may lie which was claimed later: a place goes with its claim.
async fn a_place_that_a_later_claim_has_filled_gives_no_message_for_another(fixture: Fixture) {
    enqueue(&fixture, 1).await;
    let earlier = Placed::claim(&fixture).await;
    enqueue(&fixture, 2).await;
    let later = Placed::claim(&fixture).await;
    let [moved, running, handled] =
        [&earlier.claimed[0], &later.claimed[0], &later.claimed[1]].map(Clone::clone);
    let moved = (moved.0, running.1.clone());

    let (how, mut ids) = earlier
        .ack_beside(
            std::slice::from_ref(&moved),
            &[(&later, std::slice::from_ref(&handled))],
        )
        .await;
    ids.sort_unstable();
    let mut expected = vec![moved.0, handled.0];
    expected.sort_unstable();
    assert_eq!((how.as_str(), ids), ("ack", expected));
    let left = format!("SELECT count(*) FROM {{outbox}} WHERE id = '{}'", running.0);
    assert_eq!(fixture.number(&left).await, 1);
    assert_eq!(fixture.rows("outbox_done").await, 2);
}

/// VACUUM FULL moves rows and leaves everything else of them as it was: another message of the same claim lies
/// at the place then.
async fn a_table_that_was_rewritten_since_the_claim_gives_no_message_for_another(fixture: Fixture) {
    enqueue(&fixture, 20).await;
    fixture
        .sql("DELETE FROM {outbox} WHERE id IN (SELECT id FROM {outbox} ORDER BY ctid LIMIT 10)")
        .await;
    // Whatever others still look at cannot be vacuumed away yet.
    eventually(|| async {
        fixture.sql("VACUUM {outbox}").await;
        let seen = "SELECT relallvisible::bigint FROM pg_class WHERE oid = '{outbox}'::regclass";
        (fixture.number(seen).await > 0).then_some(())
    })
    .await;
    let placed = Placed::claim(&fixture).await;
    let mut claimed = placed.claimed.clone();
    claimed.sort_by_key(|(id, _)| *id);
    let at = async |place: &str| -> Option<Uuid> {
        let sql = fixture.fill("SELECT id FROM {outbox} WHERE ctid = $1::text::tid");
        let row = placed.client.query_opt(&sql, &[&place]).await.unwrap();
        row.map(|row| row.get(0))
    };
    let (first, rest) = claimed.split_first().unwrap();
    assert_eq!(placed.ack(std::slice::from_ref(first)).await.0, "placed");
    let (second, its_place) = &rest[0];
    eventually(|| async {
        fixture.sql("VACUUM FULL {outbox}").await;
        at(its_place).await.filter(|there| there != second)
    })
    .await;

    let mut moved = 0;
    for (id, place) in rest {
        let there = at(place).await;
        moved += usize::from(there.is_some_and(|there| there != *id));
        let acked = placed.ack(&[(*id, place.clone())]).await;
        assert_eq!(acked, ("ack".to_owned(), vec![*id]));
    }
    assert!(moved > 0, "no place held another message");
    assert_eq!(fixture.rows("outbox").await, 0);
    assert_eq!(fixture.rows("outbox_done").await, 10);
}

async fn enqueue(fixture: &Fixture, count: usize) {
    let messages: Vec<Message> = (0..count).map(|_| Message::new("a", "1")).collect();
    let outbox = fixture.room.outbox();
    outbox.enqueue_many(&messages).await.unwrap();
}

testkit::mount!(
    postgres: the_messages_of_several_claims_are_acked_where_they_lie,
    a_row_that_was_written_since_its_claim_is_looked_for_by_its_id,
    a_place_that_a_later_claim_has_filled_gives_no_message_for_another,
    a_table_that_was_rewritten_since_the_claim_gives_no_message_for_another,
);
