//! What the store says about its work: which log lines, at which level, with which fields, and what
//! never shows.

use std::time::Duration;

use postroom::transport::{Endpoint, Envelope};
use postroom::{
    Abandon, JoinId, JoinWait, List, Message, NewJoin, Options, OwnerToken, State, WorkItemId,
};
use testkit::{Backend, Fixture, LEASE};
use tracing::Level;

use testkit::logs::{Logs, catch};

/// What a future gives back, and everything that is logged while it runs.
async fn logged<T>(work: impl Future<Output = T>) -> (T, Logs) {
    let logs = catch();
    (work.await, logs)
}

/// Shows OBX-102, OBX-107.
async fn an_enqueue_is_logged_with_topic_and_correlation(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("order.created", "x").correlation("req-1");
    let (_, log) = logged(async {
        outbox.enqueue(&message).await.unwrap();
        outbox
            .enqueue_many(&[
                Message::new("order.paid", "x"),
                Message::new("order.paid", "x").correlation(""),
            ])
            .await
    })
    .await;

    let lines = log.at(Level::INFO, "enqueued");
    let facts = lines
        .iter()
        .map(|line| (line.field("topic"), line.field("correlation_id")));
    assert_eq!(
        facts.collect::<Vec<_>>(),
        [
            ("order.created", "req-1"),
            ("order.paid", ""),
            ("order.paid", "")
        ]
    );
    assert!(
        lines
            .iter()
            .all(|line| line.field("store") == fixture.room.identifier())
    );
}

/// An enqueue in a caller's transaction is logged too.
///
/// Shows OBX-102, OBX-107.
async fn an_enqueue_in_a_callers_transaction_is_logged(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("order.created", "x").correlation("req-1");
    let (_, log) = match fixture.backend {
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut transaction = connection.transaction().unwrap();
            logged(async {
                outbox
                    .enqueue_in(&mut transaction, &message)
                    .await
                    .map(drop)
                    .unwrap()
            })
            .await
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut transaction = client.transaction().await.unwrap();
            logged(async {
                outbox
                    .enqueue_in(&mut transaction, &message)
                    .await
                    .map(drop)
                    .unwrap()
            })
            .await
        }
        Backend::MySql => {
            let mut client = fixture.mysql().await;
            let mut transaction = testkit::mysql::begin(&mut client).await;
            logged(async {
                outbox
                    .enqueue_in(&mut transaction, &message)
                    .await
                    .map(drop)
                    .unwrap()
            })
            .await
        }
        Backend::SqlServer => {
            let mut transaction = fixture.sqlserver().await;
            transaction.begin_transaction().await.unwrap();
            logged(async {
                outbox
                    .enqueue_in(&mut transaction, &message)
                    .await
                    .map(drop)
                    .unwrap()
            })
            .await
        }
    };

    let lines = log.at(Level::INFO, "enqueued");
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (lines[0].field("topic"), lines[0].field("correlation_id")),
        ("order.created", "req-1")
    );
    assert_eq!(lines[0].field("store"), fixture.room.identifier());
}

/// A message that was refused was not enqueued, and no line says so.
///
/// Shows OBX-102.
async fn a_refused_message_is_not_logged_as_enqueued(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (_, log) = logged(async {
        outbox.enqueue(&Message::new("", "x")).await.unwrap_err();
        outbox
            .enqueue(&Message::new("a", "x").join(JoinId::new()))
            .await
            .unwrap_err();
    })
    .await;
    assert!(log.at(Level::INFO, "enqueued").is_empty());
}

/// Shows OBX-103, OBX-107.
async fn a_claim_is_logged_with_its_count(fixture: Fixture) {
    fixture.enqueue(3).await;
    let outbox = fixture.room.outbox();
    let (_, log) = logged(async {
        for _ in 0..3 {
            outbox.claim(OwnerToken::new(), LEASE, 2).await.unwrap();
        }
    })
    .await;

    let lines = log.at(Level::DEBUG, "claimed");
    assert_eq!(
        lines
            .iter()
            .map(|line| line.field("count"))
            .collect::<Vec<_>>(),
        ["2", "1", "0"]
    );
    for line in lines {
        assert_eq!(line.field("queue"), "outbox");
        assert_eq!(line.field("store"), fixture.room.identifier());
    }
}

/// Shows OBX-106, OBX-107.
async fn a_reap_is_logged_with_its_count(fixture: Fixture) {
    fixture.enqueue(2).await;
    fixture.claim(2).await;
    fixture.expire_leases().await;
    let outbox = fixture.room.outbox();
    let (_, log) = logged(async { outbox.reap().await.unwrap() }).await;

    let lines = log.at(Level::INFO, "reaped expired leases");
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (lines[0].field("count"), lines[0].field("queue")),
        ("2", "outbox")
    );
    assert_eq!(lines[0].field("store"), fixture.room.identifier());
}

/// A message that was not ready yet is no error, and settling is everyday work: neither is worth more
/// than a line for whoever looks for details.
///
/// Shows C-57.
async fn settling_is_logged_quietly(fixture: Fixture) {
    fixture.enqueue(3).await;
    let (owner, ids) = fixture.claim(3).await;
    let outbox = fixture.room.outbox();
    let (_, log) = logged(async {
        outbox
            .abandon(owner, &ids[..1], Abandon::default().deferred())
            .await
            .unwrap();
        outbox.ack(owner, &ids[1..2]).await.unwrap();
        outbox.fail(owner, &ids[2..], "no").await.unwrap();
    })
    .await;

    let lines = log.at(Level::DEBUG, "settled");
    let facts = lines
        .iter()
        .map(|line| (line.field("operation"), line.field("count")));
    assert_eq!(
        facts.collect::<Vec<_>>(),
        [("abandon", "1"), ("ack", "1"), ("fail", "1")]
    );
    assert!(
        log.events().iter().all(|line| line.level >= Level::DEBUG),
        "{:?}",
        log.events()
    );
}

/// Whatever is done, every line of ours names the store.
///
/// Shows OBX-107.
async fn every_line_names_its_store(fixture: Fixture) {
    let (_, log) = logged(life_of_some_messages(&fixture, "x")).await;
    let lines = log.events();
    assert!(lines.len() > 10, "{} lines", lines.len());
    for line in lines {
        assert_eq!(line.field("store"), fixture.room.identifier(), "{line:?}");
    }
}

/// The identifier is the same for the same store and another for another.
///
/// Shows OBX-107.
async fn a_store_is_named_the_same_every_time(fixture: Fixture) {
    assert_eq!(
        fixture.again().await.identifier(),
        fixture.room.identifier()
    );
    let other = Fixture::empty(fixture.backend).await;
    assert_ne!(other.room.identifier(), fixture.room.identifier());
    let module = fixture
        .options()
        .schema("another_module")
        .connect()
        .await
        .unwrap();
    assert_ne!(module.identifier(), fixture.room.identifier());
}

/// Whatever happens to a message, its payload shows in no log line.
///
/// Shows OBX-125, C-58.
async fn no_log_line_holds_a_payload(fixture: Fixture) {
    let (_, log) = logged(life_of_some_messages(&fixture, CANARY)).await;
    let text = log.text();
    for message in ["enqueued", "claimed", "settled", "reaped"] {
        assert!(text.contains(message), "{message}");
    }
    assert!(
        !text.contains(CANARY),
        "{}",
        text.lines()
            .find(|line| line.contains(CANARY))
            .unwrap_or_default()
    );
}

const CANARY: &str = "canary-4711";

/// Messages are enqueued, claimed, settled in every way, listed, replayed, purged and cleaned up, and
/// what can be refused is refused.
async fn life_of_some_messages(fixture: &Fixture, payload: &str) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    let join = joins
        .start(&NewJoin::new(1).metadata(payload))
        .await
        .unwrap();
    let message = Message::new("a", payload).header("note", payload);
    outbox
        .enqueue_many(&[
            message.clone(),
            message.clone(),
            message.clone().join(join),
            message.clone(),
        ])
        .await
        .unwrap();
    joins
        .enqueue_wait(&JoinWait::new(join, "next", payload).on_fail("failed", payload))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    let ids: Vec<_> = outbox
        .claim(owner, LEASE, 10)
        .await
        .unwrap()
        .iter()
        .map(|message| message.id)
        .collect();
    outbox.renew(owner, &ids, LEASE).await.unwrap();
    outbox
        .abandon(owner, &ids[..1], Abandon::after(Duration::ZERO).error("no"))
        .await
        .unwrap();
    outbox.fail(owner, &ids[1..2], "no").await.unwrap();
    outbox.ack(owner, &ids[2..]).await.unwrap();
    outbox.get(ids[0]).await.unwrap();
    outbox.list(&List::new(State::Dead)).await.unwrap();
    outbox.counts().await.unwrap();
    outbox.replay(&ids).await.unwrap();
    outbox.purge(&ids).await.unwrap();
    outbox.reap().await.unwrap();
    outbox.cleanup(Duration::from_secs(60)).await.unwrap();
    for refused in refusals(
        payload,
        &outbox.list(&List::new(State::Ready)).await.unwrap()[0].id,
    ) {
        outbox.enqueue(&refused).await.unwrap_err();
    }
}

/// Messages that cannot be enqueued, each for another reason.
fn refusals(payload: &str, taken: &WorkItemId) -> [Message; 4] {
    [
        Message::new("a", format!("{payload}\0")),
        Message::new("", payload),
        Message::new("a", payload).id(*taken),
        Message::new("a", payload).join(JoinId::new()),
    ]
}

/// Errors name what is wrong, not what was in the message: neither ours nor the database's, which
/// would like to quote the failing row.
///
/// Shows OBX-125, C-58.
async fn no_error_holds_a_payload(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let taken = fixture.enqueue(1).await[0];
    let mut errors = Vec::new();
    for refused in refusals(CANARY, &taken) {
        errors.push(outbox.enqueue(&refused).await.unwrap_err());
        errors.push(outbox.enqueue_many(&[refused]).await.unwrap_err());
    }
    fixture.refuse("INSERT", "outbox").await;
    errors.push(
        outbox
            .enqueue(&Message::new("a", CANARY))
            .await
            .unwrap_err(),
    );
    fixture.allow("INSERT").await;
    if fixture.backend == Backend::Postgres {
        fixture
            .sql("ALTER TABLE {outbox} ADD CHECK (payload NOT LIKE 'canary%')")
            .await;
        errors.push(
            outbox
                .enqueue(&Message::new("a", CANARY))
                .await
                .unwrap_err(),
        );
    }

    for error in errors {
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
        assert!(!error.to_string().is_empty());
    }
}

/// Shows OBX-125, C-58.
async fn no_debug_output_holds_a_payload(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", CANARY).header("note", CANARY);
    let receipt = outbox.enqueue(&message).await.unwrap();
    let stored = outbox.get(receipt.work_item_id).await.unwrap().unwrap();
    assert_eq!(stored.payload, CANARY);
    let (_, statements) = outbox.statements(&message).unwrap();
    let envelope = Envelope::new("1", "order", CANARY).header("note", CANARY);
    let loaded = fixture
        .room
        .transport_outbox()
        .load_pending(1)
        .await
        .unwrap();
    let wait = JoinWait::new(JoinId::new(), "next", CANARY).on_fail("failed", CANARY);

    for shown in [
        format!("{message:?}"),
        format!("{stored:?}"),
        format!("{statements:?}"),
        format!(
            "{envelope:?} {:?}",
            Endpoint::new("orders", "orders.created")
        ),
        format!("{loaded:?}"),
        format!("{wait:?}"),
    ] {
        assert!(!shown.contains(CANARY), "{shown}");
        assert!(shown.len() > 20, "{shown}");
    }
}

/// Shows OBX-125, C-58.
async fn no_password_shows(fixture: Fixture) {
    let url = match fixture.backend {
        Backend::Postgres => "postgres://user:canary-4711@127.0.0.1:1/shop?application_name=x",
        Backend::Sqlite => "postgres:canary-4711 is no connection string",
        Backend::MySql => "mysql://user:canary-4711@127.0.0.1:1/shop",
        Backend::SqlServer => "sqlserver://user:canary-4711@127.0.0.1:1/shop?encrypt=on",
    };
    let options = Options::new(url);
    let shown = format!("{options:?}");
    let (error, log) = logged(options.connect()).await;
    let error = error.unwrap_err();

    for text in [shown, error.to_string(), format!("{error:?}"), log.text()] {
        assert!(!text.contains(CANARY), "{text}");
    }
    assert!(!fixture.room.identifier().contains('@'));
    assert!(!format!("{:?}", fixture.room).contains('@'));
}

testkit::mount!(
    an_enqueue_is_logged_with_topic_and_correlation,
    an_enqueue_in_a_callers_transaction_is_logged,
    a_refused_message_is_not_logged_as_enqueued,
    a_claim_is_logged_with_its_count,
    a_reap_is_logged_with_its_count,
    settling_is_logged_quietly,
    every_line_names_its_store,
    a_store_is_named_the_same_every_time,
    no_log_line_holds_a_payload,
    no_error_holds_a_payload,
    no_debug_output_holds_a_payload,
    no_password_shows,
);
