//! What can be checked without a server: the library binds what the statements take and reads what they
//! return; the files parse, and name only what is there.

use std::time::{Duration, SystemTime};

use testkit::tsql::{Statement, check};

use super::pretend::{ID, Pretend};
use crate::error::{Error, ErrorKind};
use crate::migrate::Plan;
use crate::sql::catalog::{By, render};
use crate::sql::{Catalog, Dialect, Names};
use crate::{
    Abandon, AuditEntry, DeadFilter, Delivery, Inbound, InboxMessageId, InboxState, JoinId,
    JoinWait, List, Message, MessageId, NewJoin, Options, OwnerToken, Postroom, State, WorkItemId,
};

/// What a call does with the rows that come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// All columns: one less, and it must notice.
    All,
    /// Some columns, or only how many rows there are.
    Some,
}

const AGE: Duration = Duration::from_secs(3600);

/// Every operation of the library, by name.
const OPERATIONS: &[(&str, Reads)] = &[
    ("outbox enqueue", Reads::Some),
    ("outbox enqueue many", Reads::Some),
    ("outbox enqueue joined", Reads::Some),
    ("outbox enqueue once", Reads::All),
    ("outbox claim", Reads::All),
    ("outbox ack", Reads::All),
    ("outbox ack and enqueue", Reads::All),
    ("outbox abandon", Reads::All),
    ("outbox fail", Reads::All),
    ("outbox renew", Reads::All),
    ("outbox release", Reads::All),
    ("outbox reap", Reads::All),
    ("outbox get", Reads::All),
    ("outbox list", Reads::All),
    ("outbox list newest", Reads::All),
    ("outbox count", Reads::All),
    ("outbox topics", Reads::All),
    ("outbox counts", Reads::All),
    ("outbox replay", Reads::All),
    ("outbox purge", Reads::All),
    ("outbox count dead", Reads::All),
    ("outbox replay matching", Reads::All),
    ("outbox purge older", Reads::All),
    ("outbox cleanup", Reads::All),
    ("outbox dispatch", Reads::Some),
    ("inbox already processed", Reads::All),
    ("inbox mark", Reads::All),
    ("inbox enqueue", Reads::Some),
    ("inbox claim", Reads::All),
    ("inbox ack", Reads::All),
    ("inbox ack and enqueue", Reads::All),
    ("inbox ack by key", Reads::All),
    ("inbox abandon", Reads::All),
    ("inbox abandon by key", Reads::All),
    ("inbox fail", Reads::All),
    ("inbox fail by key", Reads::All),
    ("inbox renew", Reads::All),
    ("inbox renew by key", Reads::All),
    ("inbox release", Reads::All),
    ("inbox release by key", Reads::All),
    ("inbox reap", Reads::All),
    ("inbox get", Reads::All),
    ("inbox get by work item", Reads::All),
    ("inbox list", Reads::All),
    ("inbox list newest", Reads::All),
    ("inbox count", Reads::All),
    ("inbox topics", Reads::All),
    ("inbox counts", Reads::All),
    ("inbox revive", Reads::All),
    ("inbox revive by key", Reads::All),
    ("inbox purge", Reads::All),
    ("inbox purge by key", Reads::All),
    ("inbox count dead", Reads::All),
    ("inbox revive matching", Reads::All),
    ("inbox cleanup", Reads::All),
    ("inbox dispatch", Reads::Some),
    ("join start", Reads::Some),
    ("join attach", Reads::All),
    ("join report", Reads::All),
    ("join reconcile", Reads::All),
    ("join cancel", Reads::All),
    ("join get", Reads::All),
    ("join list", Reads::All),
    ("join recent", Reads::All),
    ("join members", Reads::All),
    ("join cleanup", Reads::All),
    ("join wait", Reads::Some),
    ("audit record", Reads::Some),
    ("audit list", Reads::All),
    ("audit cleanup", Reads::All),
    ("stats", Reads::All),
    ("totals", Reads::All),
    ("diagnose", Reads::All),
];

async fn perform(room: &Postroom, operation: &str) -> Result<(), Error> {
    let (outbox, inbox, joins, audit) = (room.outbox(), room.inbox(), room.joins(), room.audit());
    let (owner, ids) = (OwnerToken::new(), [WorkItemId::from(ID)]);
    let (join, message_id) = (JoinId::from(ID), MessageId::from(ID));
    let message = Message::new("text", "payload").due_at(SystemTime::now());
    let key = InboxMessageId::new("source", "1");
    let inbound = Inbound::new("source", "1", "text", "payload").hash([1]);
    let dead = DeadFilter::all().topic("text");
    match operation {
        "outbox enqueue" => outbox.enqueue(&message).await.map(drop),
        "outbox enqueue many" => outbox
            .enqueue_many(&[message.clone(), message])
            .await
            .map(drop),
        "outbox enqueue joined" => outbox.enqueue(&message.join(join)).await.map(drop),
        "outbox enqueue once" => outbox.enqueue_once("key", &message).await.map(drop),
        "outbox claim" => outbox.claim(owner, AGE, 1).await.map(drop),
        "outbox ack" => outbox.ack(owner, &ids).await.map(drop),
        "outbox ack and enqueue" => outbox
            .ack_and_enqueue(owner, ids[0], &[message])
            .await
            .map(drop),
        "outbox abandon" => outbox
            .abandon(owner, &ids, Abandon::after(AGE))
            .await
            .map(drop),
        "outbox fail" => outbox.fail(owner, &ids, "no").await.map(drop),
        "outbox renew" => outbox.renew(owner, &ids, AGE).await.map(drop),
        "outbox release" => outbox.release(owner, &ids).await.map(drop),
        "outbox reap" => outbox.reap().await.map(drop),
        "outbox get" => outbox.get(ids[0]).await.map(drop),
        "outbox list" => outbox.list(&List::new(State::Dead)).await.map(drop),
        "outbox list newest" => outbox
            .list(&List::new(State::Done).newest_first())
            .await
            .map(drop),
        "outbox count" => outbox.count(&List::new(State::Dead)).await.map(drop),
        "outbox topics" => outbox.topics().await.map(drop),
        "outbox counts" => outbox.counts().await.map(drop),
        "outbox replay" => outbox.replay(&ids).await.map(drop),
        "outbox purge" => outbox.purge(&ids).await.map(drop),
        "outbox count dead" => outbox.count_dead(&dead).await.map(drop),
        "outbox replay matching" => outbox.replay_matching(&dead).await.map(drop),
        "outbox purge older" => outbox.purge_older_than(AGE).await.map(drop),
        "outbox cleanup" => outbox.cleanup(AGE).await.map(drop),
        "outbox dispatch" => {
            let dispatcher = room.dispatcher().on("text", |_: Delivery| async {});
            dispatcher
                .drain()
                .await
                .map(|report| assert_eq!(report.done, 2))
        }
        "inbox already processed" => inbox.already_processed(&key).await.map(drop),
        "inbox mark" => inbox.mark_dead(&key).await.map(drop),
        "inbox enqueue" => inbox.enqueue(&inbound).await.map(drop),
        "inbox claim" => inbox.claim(owner, AGE, 1).await.map(drop),
        "inbox ack" => inbox.ack(owner, &ids).await.map(drop),
        "inbox ack and enqueue" => inbox
            .ack_and_enqueue(owner, ids[0], &[message])
            .await
            .map(drop),
        "inbox ack by key" => inbox.ack(owner, &key).await.map(drop),
        "inbox abandon" => inbox
            .abandon(owner, &ids, Abandon::default())
            .await
            .map(drop),
        "inbox abandon by key" => inbox
            .abandon(owner, &key, Abandon::default())
            .await
            .map(drop),
        "inbox fail" => inbox.fail(owner, &ids, "no").await.map(drop),
        "inbox fail by key" => inbox.fail(owner, &key, "no").await.map(drop),
        "inbox renew" => inbox.renew(owner, &ids, AGE).await.map(drop),
        "inbox renew by key" => inbox.renew(owner, &key, AGE).await.map(drop),
        "inbox release" => inbox.release(owner, &ids).await.map(drop),
        "inbox release by key" => inbox.release(owner, &key).await.map(drop),
        "inbox reap" => inbox.reap().await.map(drop),
        "inbox get" => inbox.get(&key).await.map(drop),
        "inbox get by work item" => {
            let call = room.store.catalog.inbox.get.call(vec![ID.into()]);
            let rows = room.store.read("get", "inbox", call).await?;
            rows.into_iter()
                .try_for_each(|row| crate::InboxMessage::shown(row).map(drop))
        }
        "inbox list" => inbox.list(&List::new(InboxState::Seen)).await.map(drop),
        "inbox list newest" => inbox
            .list(&List::new(InboxState::Seen).newest_first())
            .await
            .map(drop),
        "inbox count" => inbox.count(&List::new(InboxState::Seen)).await.map(drop),
        "inbox topics" => inbox.topics().await.map(drop),
        "inbox counts" => inbox.counts().await.map(drop),
        "inbox revive" => inbox.revive(&ids).await.map(drop),
        "inbox revive by key" => inbox.revive(&key).await.map(drop),
        "inbox purge" => inbox.purge(&ids).await.map(drop),
        "inbox purge by key" => inbox.purge(&key).await.map(drop),
        "inbox count dead" => inbox.count_dead(&dead).await.map(drop),
        "inbox revive matching" => inbox.revive_matching(&dead).await.map(drop),
        "inbox cleanup" => inbox.cleanup(AGE).await.map(drop),
        "inbox dispatch" => {
            let dispatcher = room.dispatcher().on_inbound("text", |_: Delivery| async {});
            dispatcher
                .drain()
                .await
                .map(|report| assert_eq!(report.done, 2))
        }
        "join start" => joins.start(&NewJoin::new(2)).await.map(drop),
        "join attach" => joins.attach(join, message_id).await.map(drop),
        "join report" => joins.report_failed(join, message_id).await.map(drop),
        "join reconcile" => joins.reconcile(join).await.map(drop),
        "join cancel" => joins.cancel(join).await.map(drop),
        "join get" => joins.get(join).await.map(drop),
        "join list" => joins.list("key", None, 10).await.map(drop),
        "join recent" => joins.recent(None, 10).await.map(drop),
        "join members" => joins.members(join, None, 10).await.map(drop),
        "join cleanup" => joins.cleanup(AGE).await.map(drop),
        "join wait" => joins
            .enqueue_wait(&JoinWait::new(join, "next", ""))
            .await
            .map(drop),
        "audit record" => audit.record(&AuditEntry::new("a", "b", "c")).await,
        "audit list" => audit.list(10, None).await.map(drop),
        "audit cleanup" => audit.cleanup(AGE).await.map(drop),
        "stats" => room.stats().await.map(drop),
        "totals" => room.totals().await.map(drop),
        // The first time, a table is missing, and nothing else is looked at.
        "diagnose" => {
            room.diagnose(&[]).await?;
            room.diagnose(&[]).await.map(drop)
        }
        _ => panic!("{operation} is nothing that the library does"),
    }
}

/// The library on a database that is not there, after every operation.
async fn exercised() -> (Plan, Catalog, Pretend) {
    let names = Names::of(Some(Dialect::SqlServer));
    let plan = Plan::new(Dialect::SqlServer, &names).expect("a plan");
    let pretend = Pretend::new(&plan, &names);
    let options = Options::new("sqlserver://h/d");
    let room = Postroom::on(Box::new(pretend.clone()), options, None).expect("a store");
    for (operation, reads) in OPERATIONS {
        pretend.forget(false);
        let answer = perform(&room, operation).await;
        assert_eq!(answer, Ok(()), "{operation}");
        if *reads == Reads::All {
            pretend.forget(true);
            let error = perform(&room, operation).await.expect_err(operation);
            assert_eq!(error.kind(), ErrorKind::Schema, "{operation}");
        }
    }
    let catalog = Catalog::new(Dialect::SqlServer, &names);
    (plan, catalog, pretend)
}

/// What is bound is used, what is used is bound, procedures get what they take, and every column that comes
/// back is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_takes_what_is_bound_and_returns_what_is_read() {
    let (_, catalog, pretend) = exercised().await;
    let statements = pretend.statements();
    for script in catalog.scripts() {
        let sql = &*script.parts[0].sql;
        assert!(statements.contains_key(sql), "nothing uses this: {sql}");
    }
}

/// By Microsoft's own parser and schema compiler, where they can be had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_parses_and_names_what_is_there() {
    let (plan, _, pretend) = exercised().await;
    let names = Names::of(Some(Dialect::SqlServer));
    let fill = |text| {
        render(
            Dialect::SqlServer,
            &names,
            &names.outbox,
            By::WorkItem,
            text,
        )
    };
    let others: [(&str, &[&'static str]); 11] = [
        (include_str!("advance.sql"), &["bigint"]),
        (include_str!("next_ready.sql"), &[]),
        (include_str!("drop_schema.sql"), &[]),
        (include_str!("connection.sql"), &[]),
        (include_str!("migrations/missing.sql"), &["nvarchar(max)"]),
        (include_str!("migrations/lost.sql"), &["nvarchar(max)"]),
        (include_str!("migrations/lock.sql"), &["nvarchar(255)"]),
        (include_str!("migrations/applied.sql"), &[]),
        (include_str!("clock.sql"), &[]),
        (include_str!("transaction.sql"), &[]),
        (include_str!("in_transaction.sql"), &[]),
    ];
    let others = others.map(|(text, types)| (fill(text), types.to_vec()));
    let statements: Vec<Statement> = pretend
        .statements()
        .into_iter()
        .chain(others)
        .enumerate()
        .map(statement)
        .collect();
    let Some(findings) = check(&plan.script(Dialect::SqlServer), &statements) else {
        return;
    };
    assert!(
        findings.problems.is_empty(),
        "{}",
        findings.problems.join("\n")
    );
    if let Err(reason) = findings.validated {
        eprintln!("NOT RUN: names were not checked: {reason}");
    }
}

/// A join that names no index may read a small table from end to end, and wait there for everybody's locks.
#[test]
fn messages_and_members_are_looked_up_by_an_index() {
    let names = Names::of(Some(Dialect::SqlServer));
    let plan = Plan::new(Dialect::SqlServer, &names).expect("a plan");
    let script = plan.script(Dialect::SqlServer);
    let tables = ["[Outbox] ", "[Inbox] ", "[OutboxJoinMember] "];
    let mut joins = 0;
    for join in script.split(" LOOP JOIN [infra].").skip(1) {
        let (table, condition) = join.split_once("ON ").expect("a condition");
        if tables.iter().any(|name| table.starts_with(name)) {
            let by_key = condition
                .split(' ')
                .next()
                .is_some_and(|column| column.ends_with(".Sequence"));
            assert!(by_key || table.contains("INDEX ("), "{table}");
            joins += 1;
        }
    }
    assert!(joins > 20, "{joins}");
}

/// A check that finds nothing must be able to find something.
#[test]
fn what_is_wrong_is_found() {
    let schema = "CREATE TABLE [dbo].[Thing] (Id int NOT NULL);\nGO\n";
    let wrong = |text: &str| {
        let statement = statement((0, (text.to_owned(), Vec::new())));
        check(schema, &[statement]).map(|findings| (findings.problems, findings.validated))
    };
    let Some((problems, validated)) = wrong("SELECT Id FROM [dbo].[Thing] WHERE") else {
        return;
    };
    assert!(!problems.is_empty());
    for text in [
        "SELECT Name FROM [dbo].[Thing]",
        "SELECT Id FROM [dbo].[Nothing]",
        "SELECT @P1 FROM [dbo].[Thing]",
    ] {
        let found = wrong(text).is_some_and(|(problems, _)| !problems.is_empty());
        assert!(found || validated.is_err(), "{text}");
    }
}

/// Everything is called after the chosen names, and nothing after the default ones.
#[test]
fn chosen_names_are_used_everywhere() {
    let options = Options::new("mssql:")
        .schema("shop")
        .outbox_table("Letters")
        .inbox_table("Arrivals")
        .join_table("Bundles")
        .join_member_table("BundleParts");
    let script = options.schema_sql().expect("a script");
    for name in [
        "[shop].[Letters]",
        "[shop].[Letters_Claim]",
        "[shop].[Arrivals_Mark]",
        "[IX_Letters_Claim]",
        "[FK_BundleParts_Join]",
        "[shop].[BundlesWait]",
    ] {
        assert!(script.contains(name), "{name}");
    }
    for name in ["[infra]", "[Outbox", "[Inbox", "_Outbox_", "_Inbox_"] {
        assert!(!script.contains(name), "{name}");
    }
}

fn statement((number, (text, types)): (usize, (String, Vec<&'static str>))) -> Statement {
    let parameters = types.iter().enumerate();
    let parameters: Vec<String> = parameters
        .map(|(at, kind)| format!("@P{} {kind}", at + 1))
        .collect();
    Statement {
        name: format!("{number} {}", beginning(&text)),
        parameters: parameters.join(", "),
        text,
    }
}

/// Enough to know it by.
fn beginning(text: &str) -> String {
    let letters = text
        .chars()
        .filter(|letter| letter.is_ascii_alphanumeric() || *letter == ' ');
    letters.take(60).collect()
}
