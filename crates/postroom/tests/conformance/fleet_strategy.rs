//! Which store is asked next. The order is read from the log of claims, with one store asked at a time.

use std::time::Duration;

use postroom::fleet::{Asked, Candidate, DrainFirst, RoundRobin, Strategy};
use postroom::{Delivery, Inbound, Message};
use testkit::{Fixture, eventually};

use crate::fleet::{fleet_of, logged, stores};

testkit::mount!(
    a_strategy_of_ones_own_decides,
    drain_first_stays_until_a_claim_returns_nothing,
    drain_first_stays_with_a_store_whose_handlers_are_busy,
    round_robin_takes_one_batch_from_each_store_in_turn,
);

/// How many messages each queue of each store has, and how many one claim takes. The first store may have
/// had many turns until the others are open, on a busy machine.
const MESSAGES: usize = 160;
const BATCH: usize = 2;

/// The claims of one queue: which store (0, 1, 2), and how many messages.
type Claims = Vec<(usize, usize)>;

/// Works three full stores, and gives back the claims of the outbox and those of the inbox.
async fn claims(
    fixture: &Fixture,
    strategy: impl Strategy + Clone + Sync,
    concurrency: usize,
) -> [Claims; 2] {
    let stores = stores(fixture, 3).await;
    for store in &stores {
        let messages = vec![Message::new("t", ""); MESSAGES];
        store.room.outbox().enqueue_many(&messages).await.unwrap();
        for number in 0..MESSAGES {
            let inbound = Inbound::new("s", number.to_string(), "t", "");
            store.room.inbox().enqueue(&inbound).await.unwrap();
        }
    }
    // It is about the order alone: on a busy machine every store may be slow.
    let builder = fleet_of(&stores)
        .strategy(strategy)
        .patience(Duration::from_secs(60));
    let (keys, lines) = logged(async move || {
        let fleet = builder.open().await.unwrap();
        let keys = ["a", "b", "c"].map(|key| fleet.identifier(key).unwrap());
        let running = fleet
            .dispatcher()
            .batch(BATCH)
            .concurrency(concurrency)
            .poll_interval(Duration::from_secs(60))
            .on("t", |_: Delivery| async {})
            .on_inbound("t", |_: Delivery| async {})
            .start()
            .unwrap();
        let all = u64::try_from(3 * 2 * MESSAGES).unwrap();
        eventually(|| async { (running.report().done == all).then_some(()) }).await;
        running.stop().await;
        keys
    })
    .await;
    ["outbox", "inbox"].map(|queue| {
        let claims = lines
            .iter()
            .filter(|line| line.message == "claimed" && line.field("queue") == queue);
        claims
            .map(|line| {
                let store = keys.iter().position(|key| key == line.field("store"));
                (store.unwrap(), line.field("count").parse().unwrap())
            })
            .collect()
    })
}

/// Shows OBX-067, OBX-068, IBX-086, IBX-087.
async fn round_robin_takes_one_batch_from_each_store_in_turn(fixture: Fixture) {
    for claims in claims(&fixture, RoundRobin, 100).await {
        // From when all three are there until the first has nothing more.
        let there = (0..3).map(|store| claims.iter().position(|(one, _)| *one == store));
        let start = there.map(Option::unwrap).max().unwrap();
        let end = claims.iter().position(|(_, count)| *count == 0).unwrap();
        assert!(end >= start + 12, "{claims:?}");
        for pair in claims[start..end].windows(2) {
            assert_eq!(pair[1], ((pair[0].0 + 1) % 3, BATCH), "{claims:?}");
        }
    }
}

/// Shows OBX-067, OBX-069, IBX-086, IBX-088.
async fn drain_first_stays_until_a_claim_returns_nothing(fixture: Fixture) {
    for claims in claims(&fixture, DrainFirst, 100).await {
        stays_until_nothing_is_left(&claims);
    }
}

/// The store has no room for more until its handlers are done: it is waited for, for a moment.
///
/// Shows OBX-069, IBX-088.
async fn drain_first_stays_with_a_store_whose_handlers_are_busy(fixture: Fixture) {
    for claims in claims(&fixture, DrainFirst, 1).await {
        stays_until_nothing_is_left(&claims);
    }
}

fn stays_until_nothing_is_left(claims: &Claims) {
    for pair in claims.windows(2) {
        if pair[0].1 > 0 {
            assert_eq!(pair[1].0, pair[0].0, "{claims:?}");
        }
    }
    let total: usize = claims.iter().map(|(_, count)| count).sum();
    assert_eq!(total, 3 * MESSAGES);
}

/// Shows OBX-067, IBX-086.
async fn a_strategy_of_ones_own_decides(fixture: Fixture) {
    #[derive(Clone)]
    struct CFirst;

    impl Strategy for CFirst {
        fn next(&mut self, stores: &[Candidate<'_>], last: Option<&Asked>) -> Option<usize> {
            stores
                .iter()
                .position(|store| store.is_free() && store.key().as_str() == "c")
                .or_else(|| RoundRobin.next(stores, last))
        }
    }

    for claims in claims(&fixture, CFirst, 100).await {
        let of_c = claims.iter().skip_while(|(store, _)| *store != 2);
        let row: Vec<usize> = of_c
            .take_while(|(store, _)| *store == 2)
            .map(|(_, count)| *count)
            .collect();
        let mut expected = vec![BATCH; MESSAGES / BATCH];
        expected.push(0);
        assert_eq!(row, expected, "{claims:?}");
    }
}
