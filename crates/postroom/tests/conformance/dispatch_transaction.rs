//! Handlers with a transaction: what they write commits with the ack, or not at all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use postroom::{
    Delivery, ErrorKind, Failure, HandlerError, JoinStatus, Message, NewJoin, Outcome, OwnerToken,
    Queue, RetryPolicy, State, Tx, Verdict, done,
};
use testkit::{Backend, Fixture, eventually};
use tokio::sync::{Notify, oneshot};

use crate::dispatch_scene::{QUEUES, SHORT_LEASE, dispatcher, outlive_leases, put};

/// A table without any constraint, in which an effect that came twice would be seen twice.
#[derive(Clone)]
struct Ledger {
    insert: String,
}

impl Ledger {
    async fn new(fixture: &Fixture) -> Self {
        fixture.sql("CREATE TABLE {ledger} (message TEXT)").await;
        let insert = match fixture.backend {
            Backend::Sqlite => "INSERT INTO {ledger} (message) VALUES (?1)",
            Backend::Postgres => "INSERT INTO {ledger} (message) VALUES ($1)",
            Backend::MySql => "INSERT INTO {ledger} (message) VALUES (?)",
            Backend::SqlServer => "INSERT INTO {ledger} (message) VALUES (@P1)",
        };
        Self {
            insert: fixture.fill(insert),
        }
    }

    /// Writes a line in the handler's transaction.
    async fn note(&self, tx: &mut Tx, text: &str) -> Result<(), HandlerError> {
        tx.execute(&self.insert, vec![text.into()]).await?;
        Ok(())
    }
}

async fn lines(fixture: &Fixture) -> i64 {
    fixture.rows("ledger").await
}

/// Shows C-01, C-32. A step of a join is handled: its line, its ack, what follows and the counter.
async fn all_that_a_handler_does_commits_with_the_ack(fixture: Fixture) {
    let room = &fixture.room;
    let insert = Ledger::new(&fixture).await.insert;
    let join = room.joins().start(&NewJoin::new(1)).await.unwrap();
    let step = Message::new("step", "7").join(join);
    let step = room.outbox().enqueue(&step).await.unwrap();
    let other = fixture.again().await;
    let seen_before: Arc<Mutex<Vec<(u64, u64, JoinStatus)>>> = Arc::default();
    let seen = Arc::clone(&seen_before);
    let dispatcher = room
        .dispatcher()
        .on("step", move |delivery: Delivery, mut tx: Tx| {
            let (insert, other, seen) = (insert.clone(), other.clone(), Arc::clone(&seen));
            async move {
                tx.execute(&insert, vec![delivery.payload().into()]).await?;
                delivery
                    .room()
                    .outbox()
                    .enqueue_in(&mut tx, &Message::new("inside", ""))
                    .await?;
                // Nobody sees anything of it yet.
                let counts = other.outbox().counts().await?;
                let status = other.joins().get(join).await?.map(|join| join.status);
                let before = (counts.done, counts.ready, status.unwrap());
                seen.lock().unwrap().push(before);
                Ok::<_, HandlerError>(Outcome::enqueue([Message::new("after", "")]))
            }
        });

    assert_eq!(dispatcher.run_once().await.unwrap().done, 1);

    assert_eq!(
        *seen_before.lock().unwrap(),
        [(0, 0, JoinStatus::Pending)],
        "before the commit"
    );
    assert_eq!(lines(&fixture).await, 1);
    let step = room.outbox().get(step.work_item_id).await.unwrap().unwrap();
    assert_eq!(step.state, State::Done);
    assert_eq!(step.progress.processed_by.as_deref(), Some("tester"));
    assert_eq!(room.outbox().counts().await.unwrap().ready, 2);
    let join = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(
        (join.status, join.completed_steps),
        (JoinStatus::Completed, 1)
    );
}

/// Shows C-01, IBX-077. What fails after its writes leaves nothing, and the next run writes once.
async fn whatever_ends_a_handler_otherwise_rolls_back(fixture: Fixture) {
    let room = &fixture.room;
    let ledger = Ledger::new(&fixture).await;
    for queue in QUEUES {
        for end in [
            "error",
            "panic",
            "retry",
            "not ready",
            "timeout",
            "follow-up",
        ] {
            let before = lines(&fixture).await;
            let message = put(room, queue, "a", "").await;
            let fails = Arc::new(AtomicBool::new(true));
            let (ledger, failing) = (ledger.clone(), Arc::clone(&fails));
            let handler = move |delivery: Delivery, mut tx: Tx| {
                let (ledger, failing) = (ledger.clone(), Arc::clone(&failing));
                async move {
                    ledger.note(&mut tx, &delivery.message_id()).await?;
                    let enqueued = Message::new("other", "");
                    delivery
                        .room()
                        .outbox()
                        .enqueue_in(&mut tx, &enqueued)
                        .await?;
                    if !failing.load(Ordering::SeqCst) {
                        return done();
                    }
                    match end {
                        "error" => Err(HandlerError::business("no")),
                        "panic" => panic!("no"),
                        "retry" => Ok(Outcome::Retry(None)),
                        "not ready" => Ok(Outcome::NotReady(None)),
                        // What follows is refused, so nothing is done.
                        "follow-up" => Ok(Outcome::enqueue([Message::new("", "")])),
                        _ => std::future::pending().await,
                    }
                }
            };
            let failing = dispatcher(room, queue, "a", handler.clone());
            let failing = match end {
                "timeout" => failing.handler_timeout(Duration::from_millis(250)),
                _ => failing,
            };

            failing.run_once().await.unwrap();

            assert_eq!(message.state(room).await, State::Ready, "{queue:?} {end}");
            assert_eq!(lines(&fixture).await, before, "{queue:?} {end}");
            let other = "topic = 'other'";
            assert_eq!(fixture.live(other).await, 0, "{queue:?} {end}");
            fixture.skip_backoff().await;
            fails.store(false, Ordering::SeqCst);
            let fine = dispatcher(room, queue, "a", handler);
            fine.run_once().await.unwrap();
            assert_eq!(message.state(room).await, State::Done, "{queue:?} {end}");
            assert_eq!(lines(&fixture).await, before + 1, "{queue:?} {end}");
            fixture.sql("DELETE FROM {outbox}").await;
        }
    }
}

/// Shows C-01, C-18. The lease is lost between the writes and the commit, and somebody else has the
/// message.
async fn a_lost_lease_rolls_everything_back(fixture: Fixture) {
    let room = &fixture.room;
    let ledger = Ledger::new(&fixture).await;
    for queue in QUEUES {
        let join = room.joins().start(&NewJoin::new(1)).await.unwrap();
        let message = match queue {
            Queue::Outbox => {
                let message = Message::new("a", "").join(join);
                let receipt = room.outbox().enqueue(&message).await.unwrap();
                crate::dispatch_scene::Put::Outbox(receipt.work_item_id)
            }
            Queue::Inbox => put(room, queue, "a", "").await,
        };
        let thief = fixture.again().await;
        let (ledger, robbed) = (ledger.clone(), fixture.clone());
        let dispatcher = dispatcher(room, queue, "a", move |_: Delivery, mut tx: Tx| {
            let (ledger, thief, robbed) = (ledger.clone(), thief.clone(), robbed.clone());
            async move {
                if robbed.backend == Backend::Postgres {
                    ledger.note(&mut tx, "late").await?;
                }
                robbed.expire_leases().await;
                let lease = Duration::from_secs(300);
                let stolen = match queue {
                    Queue::Outbox => thief
                        .outbox()
                        .claim(OwnerToken::new(), lease, 1)
                        .await?
                        .len(),
                    Queue::Inbox => thief
                        .inbox()
                        .claim(OwnerToken::new(), lease, 1)
                        .await?
                        .len(),
                };
                assert_eq!(stolen, 1);
                if robbed.backend == Backend::Sqlite {
                    // There is one writer: the thief could not have come in between.
                    ledger.note(&mut tx, "late").await?;
                }
                Ok::<_, HandlerError>(Outcome::enqueue([Message::new("after", "")]))
            }
        });

        let report = dispatcher.run_once().await.unwrap();

        assert_eq!((report.done, report.lost), (0, 1), "{queue:?}");
        assert_eq!(lines(&fixture).await, 0, "{queue:?}");
        assert_eq!(fixture.live("topic = 'after'").await, 0, "{queue:?}");
        assert_eq!(message.state(room).await, State::InFlight, "the thief's");
        let join = room.joins().get(join).await.unwrap().unwrap();
        assert_eq!(join.completed_steps, 0);
        fixture.sql("DELETE FROM {outbox}").await;
    }
}

/// Shows C-01. Its own dispatcher takes the message over: one line in the end.
async fn a_message_that_comes_twice_has_one_effect(fixture: Fixture) {
    let room = &fixture.room;
    let ledger = Ledger::new(&fixture).await;
    for queue in QUEUES {
        let before = lines(&fixture).await;
        let message = put(room, queue, "a", "").await;
        let began = Arc::new(Notify::new());
        let told = Arc::clone(&began);
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let ledger = ledger.clone();
        let dispatcher = dispatcher(room, queue, "a", move |_: Delivery, mut tx: Tx| {
            let (ledger, count, told) = (ledger.clone(), Arc::clone(&count), Arc::clone(&told));
            async move {
                if count.fetch_add(1, Ordering::SeqCst) == 0 {
                    told.notify_one();
                    std::future::pending::<()>().await;
                }
                ledger.note(&mut tx, "once").await
            }
        });
        let running = dispatcher.lease(SHORT_LEASE).start().unwrap();
        began.notified().await;
        fixture.expire_leases().await;
        eventually(|| async { (message.state(room).await == State::Done).then_some(()) }).await;
        let report = running.stop().await;
        assert_eq!(runs.load(Ordering::SeqCst), 2, "{queue:?}");
        assert_eq!((report.done, report.lost), (1, 1), "{queue:?}");
        assert_eq!(lines(&fixture).await, before + 1, "{queue:?}");
    }
}

async fn the_clients_underneath_are_in_the_transaction(fixture: Fixture) {
    let room = &fixture.room;
    let insert = Ledger::new(&fixture).await.insert;
    put(room, Queue::Outbox, "a", "").await;
    let backend = fixture.backend;
    let dispatcher = room.dispatcher().on("a", move |mut tx: Tx| {
        let insert = insert.clone();
        async move {
            match backend {
                Backend::Sqlite => {
                    let rows = tx
                        .sqlite(move |connection| connection.execute(&insert, ["a"]))
                        .await?;
                    assert_eq!(rows, 1);
                    assert!(tx.postgres().await.err().is_some());
                }
                Backend::Postgres => {
                    let rows = tx.postgres().await?.execute(&insert, &[&"a"]).await?;
                    assert_eq!(rows, 1);
                    assert!(tx.sqlite(|_| Ok(())).await.is_err());
                }
                Backend::MySql => {
                    let mut connection = tx.mysql().await?;
                    connection.exec_drop(&insert, ("a",)).await?;
                    assert_eq!(connection.affected_rows(), 1);
                    drop(connection);
                    assert!(tx.postgres().await.err().is_some());
                }
                Backend::SqlServer => {
                    let rows = tx.execute(&insert, vec!["a".into()]).await?;
                    assert_eq!(rows, 1);
                    assert!(tx.sqlite(|_| Ok(())).await.is_err());
                }
            }
            Err::<(), _>(HandlerError::permanent("all for nothing"))
        }
    });

    assert_eq!(dispatcher.drain().await.unwrap().dead, 1);
    assert_eq!(lines(&fixture).await, 0, "rolled back");
}

/// The transaction begins with the first statement: before that a handler holds nothing.
async fn slow_work_before_the_first_statement_holds_no_lock(fixture: Fixture) {
    let room = &fixture.room;
    let ledger = Ledger::new(&fixture).await;
    put(room, Queue::Outbox, "a", "").await;
    let dispatcher = room
        .dispatcher()
        .on("a", move |mut tx: Tx, delivery: Delivery| {
            let ledger = ledger.clone();
            async move {
                // An enqueue outside of it: on SQLite it would wait for ever if the transaction had begun.
                let outbox = delivery.room().outbox();
                outbox.enqueue(&Message::new("other", "")).await?;
                ledger.note(&mut tx, "later").await
            }
        });
    let handled = tokio::time::timeout(Duration::from_secs(20), dispatcher.run_once());
    assert_eq!(handled.await.expect("no lock").unwrap().done, 1);
    assert_eq!(lines(&fixture).await, 1);
}

/// Whoever acks in the transaction that the handler was given has done no harm.
async fn an_ack_in_the_handlers_own_transaction_commits_with_it(fixture: Fixture) {
    let room = &fixture.room;
    let ledger = Ledger::new(&fixture).await;
    for queue in QUEUES {
        let before = lines(&fixture).await;
        let message = put(room, queue, "a", "").await;
        let ledger = ledger.clone();
        let dispatcher = dispatcher(room, queue, "a", move |delivery: Delivery, mut tx: Tx| {
            let ledger = ledger.clone();
            async move {
                ledger.note(&mut tx, "acked").await?;
                delivery.ack_in(&mut tx).await?;
                Ok::<_, HandlerError>(Outcome::enqueue([Message::new("after", "")]))
            }
        });

        assert_eq!(dispatcher.run_once().await.unwrap().done, 1);

        assert_eq!(message.state(room).await, State::Done, "{queue:?}");
        assert_eq!(lines(&fixture).await, before + 1, "{queue:?}");
        assert_eq!(fixture.live("topic = 'after'").await, 1, "{queue:?}");
        fixture.sql("DELETE FROM {outbox}").await;
    }
}

/// The handler goes on after an error that has ended its transaction: that is no success.
async fn a_transaction_that_has_ended_by_itself_is_not_acked(fixture: Fixture) {
    let room = &fixture.room;
    let ledger = Ledger::new(&fixture).await;
    for queue in QUEUES {
        for acks in [false, true] {
            let message = put(room, queue, "a", "").await;
            let (backend, ledger) = (fixture.backend, ledger.clone());
            let dispatcher = dispatcher(room, queue, "a", move |delivery: Delivery, mut tx: Tx| {
                let ledger = ledger.clone();
                async move {
                    ledger.note(&mut tx, "lost").await?;
                    if acks {
                        delivery.ack_in(&mut tx).await?;
                    }
                    // PostgreSQL ends a transaction at its first error; SQLite some when the disk is full; MySQL at a
                    // deadlock, and whenever somebody ends it by hand.
                    match backend {
                        Backend::Sqlite => tx.sqlite(|c| c.execute_batch("ROLLBACK")).await?,
                        Backend::Postgres => drop(tx.execute("nonsense", vec![]).await),
                        Backend::MySql => {
                            let mut connection = tx.mysql().await?;
                            connection.query_drop("ROLLBACK").await?;
                            // An error does not say how the transaction is.
                            drop(connection.query_drop("nonsense").await);
                        }
                        Backend::SqlServer => {
                            drop(tx.execute("ROLLBACK TRANSACTION", vec![]).await);
                        }
                    }
                    let _ = ledger.note(&mut tx, "outside").await;
                    done()
                }
            });

            let report = dispatcher.run_once().await.unwrap();

            assert_eq!((report.done, report.retried), (0, 1), "{queue:?} {acks}");
            assert_eq!(message.state(room).await, State::Ready, "{queue:?} {acks}");
            assert_eq!(lines(&fixture).await, 0, "{queue:?} {acks}");
            fixture.sql("DELETE FROM {outbox}").await;
            fixture.sql("DELETE FROM {inbox}").await;
        }
    }
}

/// A clone of the transaction outlives its handler: it is over, and nothing of it is left open.
async fn a_transaction_that_is_kept_is_over_with_the_handler(fixture: Fixture) {
    let room = &fixture.room;
    let ledger = Ledger::new(&fixture).await;
    for begun in [false, true] {
        let message = put(room, Queue::Outbox, "a", "").await;
        let kept: Arc<Mutex<Option<Tx>>> = Arc::default();
        let (slot, writes) = (Arc::clone(&kept), ledger.clone());
        let dispatcher = room.dispatcher().on("a", move |mut tx: Tx| {
            let (slot, writes) = (Arc::clone(&slot), writes.clone());
            async move {
                if begun {
                    writes.note(&mut tx, "inside").await?;
                }
                *slot.lock().unwrap() = Some(tx);
                done()
            }
        });
        assert_eq!(dispatcher.run_once().await.unwrap().done, 1);
        assert_eq!(message.state(room).await, State::Done);
        let mut tx = kept.lock().unwrap().take().unwrap();
        let error = tx.execute("SELECT 1", vec![]).await.unwrap_err();
        assert!(error.to_string().contains("over"), "{error}");
    }
    assert_eq!(lines(&fixture).await, 1);
    // And the store is free.
    put(room, Queue::Outbox, "b", "").await;
}

/// A policy that lets a task go on as soon as it is asked what becomes of a message.
struct Asked(Arc<Notify>);

impl RetryPolicy for Asked {
    fn decide(&self, _: &Failure<'_>) -> Verdict {
        self.0.notify_one();
        Verdict::Retry(None)
    }
}

/// A task that the handler has left behind is still using the transaction when the handler ends.
async fn a_transaction_that_is_in_use_at_the_end_is_rolled_back_when_it_is_free(fixture: Fixture) {
    let room = &fixture.room;
    let ledger = Ledger::new(&fixture).await;
    let message = put(room, Queue::Outbox, "a", "").await;
    let kept: Arc<Mutex<Vec<Tx>>> = Arc::default();
    let tasks: Arc<Mutex<Vec<tokio::task::JoinHandle<()>>>> = Arc::default();
    let backend = fixture.backend;
    let (slot, left) = (Arc::clone(&kept), Arc::clone(&tasks));
    // The handler has failed because of the task, which may end now.
    let failed = Arc::new(Notify::new());
    let policy = Asked(Arc::clone(&failed));
    let dispatcher = room.dispatcher().on("a", move |mut tx: Tx| {
        let (ledger, slot, left) = (ledger.clone(), Arc::clone(&slot), Arc::clone(&left));
        let failed = Arc::clone(&failed);
        async move {
            ledger.note(&mut tx, "inside").await?;
            // A clone stays for good, so that dropping does not end the transaction.
            slot.lock().unwrap().push(tx.clone());
            let (began, begun) = oneshot::channel();
            let task = tokio::spawn(async move {
                match backend {
                    Backend::Sqlite => {
                        let runtime = tokio::runtime::Handle::current();
                        let slow = move |_: &rusqlite::Connection| {
                            began.send(()).unwrap();
                            runtime.block_on(failed.notified());
                            Ok(())
                        };
                        tx.sqlite(slow).await.unwrap();
                    }
                    Backend::Postgres => {
                        let client = tx.postgres().await.unwrap();
                        began.send(()).unwrap();
                        failed.notified().await;
                        client.execute("SELECT 1", &[]).await.unwrap();
                    }
                    Backend::MySql => {
                        let mut connection = tx.mysql().await.unwrap();
                        began.send(()).unwrap();
                        failed.notified().await;
                        connection.query_drop("SELECT 1").await.unwrap();
                    }
                    Backend::SqlServer => {
                        let mut client = tx.sql_server().await.unwrap();
                        began.send(()).unwrap();
                        failed.notified().await;
                        client.execute("SELECT 1", &[]).await.unwrap();
                    }
                }
            });
            left.lock().unwrap().push(task);
            begun.await?;
            done()
        }
    });
    let dispatcher = dispatcher.retry(policy);

    let report = tokio::time::timeout(Duration::from_secs(20), dispatcher.run_once()).await;

    let report = report.expect("the store is free again").unwrap();
    assert_eq!((report.done, report.retried), (0, 1));
    assert_eq!(message.state(room).await, State::Ready);
    let tasks = std::mem::take(&mut *tasks.lock().unwrap());
    for task in tasks {
        task.await.unwrap();
    }
    // On PostgreSQL the lock on the table is the last that goes.
    eventually(|| async {
        let mut tx = kept.lock().unwrap()[0].clone();
        tx.execute("SELECT 1", vec![]).await.err()
    })
    .await;
    assert_eq!(lines(&fixture).await, 0, "rolled back");
    fixture.sql("DROP TABLE {ledger}").await;
    put(room, Queue::Outbox, "b", "").await;
}

/// Work on the connection panics, which must not take the writing thread along.
async fn a_panic_on_the_connection_is_contained(fixture: Fixture) {
    let room = &fixture.room;
    let ledger = Ledger::new(&fixture).await;
    let message = put(room, Queue::Outbox, "a", "").await;
    let dispatcher = room.dispatcher().on("a", move |mut tx: Tx| {
        let ledger = ledger.clone();
        async move {
            ledger.note(&mut tx, "inside").await?;
            tx.sqlite(|_| -> rusqlite::Result<()> { panic!("on the connection") })
                .await?;
            done()
        }
    });
    let report = dispatcher.run_once().await.unwrap();
    assert_eq!((report.done, report.retried), (0, 1));
    assert_eq!(message.state(room).await, State::Ready);
    assert_eq!(lines(&fixture).await, 0);
    put(room, Queue::Outbox, "b", "").await;
}

async fn the_other_databases_client_is_refused_by_name(fixture: Fixture) {
    let room = &fixture.room;
    put(room, Queue::Outbox, "a", "").await;
    let dispatcher = room.dispatcher().on("a", |mut tx: Tx| async move {
        let error = tx.sqlite(|_| Ok(())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Database);
        assert!(error.to_string().contains("not on SQLite"), "{error}");
        done()
    });
    assert_eq!(dispatcher.run_once().await.unwrap().done, 1);
}

/// More handlers than connections, each with a transaction.
async fn transactions_wait_for_each_other_and_all_commit(fixture: Fixture) {
    let ledger = Ledger::new(&fixture).await;
    for connections in [1, 4] {
        let before = lines(&fixture).await;
        let room = fixture
            .options()
            .connections(connections)
            .connect()
            .await
            .unwrap();
        for _ in 0..40 {
            put(&room, Queue::Outbox, "a", "").await;
        }
        let ledger = ledger.clone();
        let dispatcher = room
            .dispatcher()
            .on("a", move |delivery: Delivery, mut tx: Tx| {
                let ledger = ledger.clone();
                async move {
                    ledger.note(&mut tx, &delivery.message_id()).await?;
                    tokio::task::yield_now().await;
                    ledger.note(&mut tx, &delivery.message_id()).await
                }
            });
        let report = tokio::time::timeout(Duration::from_secs(30), dispatcher.drain()).await;
        assert_eq!(report.expect("no deadlock").unwrap().done, 40);
        assert_eq!(lines(&fixture).await, before + 80, "{connections}");
    }
}

testkit::mount!(
    sqlite:
    all_that_a_handler_does_commits_with_the_ack,
    whatever_ends_a_handler_otherwise_rolls_back,
    a_lost_lease_rolls_everything_back,
    a_message_that_comes_twice_has_one_effect,
    the_clients_underneath_are_in_the_transaction,
    slow_work_before_the_first_statement_holds_no_lock,
    an_ack_in_the_handlers_own_transaction_commits_with_it,
    a_transaction_that_has_ended_by_itself_is_not_acked,
    a_transaction_that_is_kept_is_over_with_the_handler,
    a_transaction_that_is_in_use_at_the_end_is_rolled_back_when_it_is_free,
    a_panic_on_the_connection_is_contained,
    transactions_wait_for_each_other_and_all_commit;
    postgres:
    all_that_a_handler_does_commits_with_the_ack,
    whatever_ends_a_handler_otherwise_rolls_back,
    a_lost_lease_rolls_everything_back,
    a_message_that_comes_twice_has_one_effect,
    the_clients_underneath_are_in_the_transaction,
    slow_work_before_the_first_statement_holds_no_lock,
    an_ack_in_the_handlers_own_transaction_commits_with_it,
    a_transaction_that_has_ended_by_itself_is_not_acked,
    a_transaction_that_is_kept_is_over_with_the_handler,
    a_transaction_that_is_in_use_at_the_end_is_rolled_back_when_it_is_free,
    the_other_databases_client_is_refused_by_name,
    transactions_wait_for_each_other_and_all_commit;
    mysql:
    all_that_a_handler_does_commits_with_the_ack,
    whatever_ends_a_handler_otherwise_rolls_back,
    a_lost_lease_rolls_everything_back,
    a_message_that_comes_twice_has_one_effect,
    the_clients_underneath_are_in_the_transaction,
    slow_work_before_the_first_statement_holds_no_lock,
    an_ack_in_the_handlers_own_transaction_commits_with_it,
    a_transaction_that_has_ended_by_itself_is_not_acked,
    a_transaction_that_is_kept_is_over_with_the_handler,
    a_transaction_that_is_in_use_at_the_end_is_rolled_back_when_it_is_free,
    transactions_wait_for_each_other_and_all_commit,
);

/// A policy that lets whatever fails wait for longer than any test.
struct Tomorrow;

impl RetryPolicy for Tomorrow {
    fn decide(&self, _: &Failure<'_>) -> Verdict {
        Verdict::Retry(Some(Duration::from_secs(86_400)))
    }
}

/// SQLite has one writer, which renewals need too: whoever keeps it is stopped, and nobody else suffers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_keeps_sqlites_writer_fails_and_no_lease_is_lost() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let outbox = fixture.room.outbox();
    outbox.enqueue(&Message::new("slow", "")).await.unwrap();
    outbox.enqueue(&Message::new("keep", "")).await.unwrap();
    let release = Arc::new(Notify::new());
    let hold = Arc::clone(&release);
    let running = fixture
        .room
        .dispatcher()
        .on("keep", |mut tx: Tx| async move {
            tx.execute("SELECT 1", vec![]).await?;
            std::future::pending::<()>().await;
            done()
        })
        .on("slow", move |_: Delivery| {
            let hold = Arc::clone(&hold);
            async move { hold.notified().await }
        })
        .lease(SHORT_LEASE)
        .retry(Tomorrow)
        .start()
        .unwrap();
    eventually(|| async { (running.running() > 0).then_some(()) }).await;
    outlive_leases(&fixture, Queue::Outbox, "topic = 'slow'").await;
    release.notify_one();
    eventually(|| async {
        let report = running.report();
        (report.done == 1 && report.retried == 1).then_some(())
    })
    .await;
    assert_eq!(running.stop().await.lost, 0);
    let kept = "SELECT count(*) FROM {outbox} WHERE topic = 'keep' AND attempt_count = 1 \
                AND last_error LIKE '%only writer%'";
    assert_eq!(fixture.number(kept).await, 1);
}
