//! The schema: created when asked, never otherwise; once, whoever asks; under any good name and under
//! no bad one; and usable by a role that may do no more than it must.

use std::time::Duration;

use postroom::{
    Abandon, ErrorKind, Inbound, InboxMessageId, List, Message, NewJoin, Options, OwnerToken,
    Postroom, State,
};
use testkit::{Backend, Fixture, LEASE};

const DAY: Duration = Duration::from_secs(86_400);

/// Every kind of work once, on any store: what a schema is for.
async fn use_everything(room: &Postroom) {
    let (outbox, joins) = (room.outbox(), room.joins());
    let join = joins.start(&NewJoin::new(2)).await.unwrap();
    outbox.enqueue(&Message::new("a", "1")).await.unwrap();
    let steps = [
        Message::new("a", "2").join(join),
        Message::new("a", "3").join(join),
        Message::new("a", "4"),
    ];
    outbox.enqueue_many(&steps).await.unwrap();
    let owner = OwnerToken::new();
    let ids: Vec<_> = outbox
        .claim(owner, LEASE, 10)
        .await
        .unwrap()
        .iter()
        .map(|message| message.id)
        .collect();
    assert_eq!(ids.len(), 4);
    assert_eq!(outbox.renew(owner, &ids, LEASE).await.unwrap().len(), 4);
    assert_eq!(
        outbox
            .abandon(owner, &ids[..1], Abandon::default())
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(outbox.ack(owner, &ids[1..2]).await.unwrap().len(), 1);
    assert_eq!(outbox.fail(owner, &ids[2..], "no").await.unwrap().len(), 2);
    let join = joins.get(join).await.unwrap().unwrap();
    assert_eq!((join.completed_steps, join.failed_steps), (1, 1));
    outbox.reap().await.unwrap();
    assert_eq!(outbox.replay(&ids[2..3]).await.unwrap().len(), 1);
    assert_eq!(outbox.purge(&ids[3..]).await.unwrap(), 1);
    outbox.purge_older_than(DAY).await.unwrap();
    outbox.cleanup(DAY).await.unwrap();
    assert_eq!(outbox.list(&List::new(State::Done)).await.unwrap().len(), 1);

    let id = InboxMessageId::new("stripe", "evt_1");
    room.inbox()
        .enqueue(&Inbound::new(
            id.source.as_str(),
            id.message_id.as_str(),
            "a",
            "b",
        ))
        .await
        .unwrap();
    assert!(room.inbox().get(&id).await.unwrap().is_some());
    room.verify().await.unwrap();
}

/// A second module in the same database.
fn module(fixture: &Fixture, name: &str) -> Options {
    match &fixture.schema {
        Some(schema) => fixture.options().schema(&format!("{schema}_{name}")),
        None => fixture.options().schema(name),
    }
}

/// Shows OBX-108, OBX-111, C-02.
async fn deploying_creates_every_table_and_index(fixture: Fixture) {
    let empty = Fixture::empty(fixture.backend).await;
    assert!(empty.tables().await.is_empty());

    empty.room.deploy().await.unwrap();
    let tables = empty.tables().await;
    for table in [
        "outbox",
        "outbox_done",
        "outbox_dead",
        "outbox_join",
        "outbox_join_member",
        "outbox_join_wait",
    ] {
        assert!(
            tables.contains(&table.to_owned()),
            "{table} is missing in {tables:?}"
        );
    }
    assert!(
        empty
            .indexes("outbox")
            .await
            .contains(&"next_attempt_at".to_owned())
    );
    assert!(
        empty
            .indexes("outbox_join_member")
            .await
            .contains(&"message_id, join_id".to_owned())
    );
    use_everything(&empty.room).await;
}

/// Shows OBX-108, OBX-112, OBX-120, C-54.
async fn deploying_creates_every_procedure(fixture: Fixture) {
    let schema = fixture.schema.clone().unwrap();
    for name in [
        "enqueue", "claim", "ack", "abandon", "fail", "reap", "renew", "replay", "purge", "cleanup",
    ] {
        let found = format!(
            "SELECT count(*) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace \
             WHERE n.nspname = '{schema}' AND p.proname = 'outbox_{name}'"
        );
        assert_eq!(fixture.number(&found).await, 1, "outbox_{name}");
    }
}

/// Shows OBX-108, C-03.
async fn a_store_may_deploy_when_it_is_opened(fixture: Fixture) {
    let empty = Fixture::empty(fixture.backend).await;
    use_everything(&empty.options().deploy(true).connect().await.unwrap()).await;

    let empty = Fixture::empty(fixture.backend).await;
    use_everything(&empty.options().dev_profile().connect().await.unwrap()).await;
}

/// By default nothing is created, whatever is called; what is missing is said.
///
/// Shows OBX-109, C-03.
async fn without_deployment_nothing_is_ever_created(fixture: Fixture) {
    let empty = Fixture::empty(fixture.backend).await;
    let room = empty.again().await;
    let outbox = room.outbox();

    let owner = OwnerToken::new();
    let id = postroom::WorkItemId::new();
    let errors = [
        outbox.enqueue(&Message::new("a", "b")).await.unwrap_err(),
        outbox
            .enqueue_many(&[Message::new("a", "b"), Message::new("a", "b")])
            .await
            .unwrap_err(),
        outbox.claim(owner, LEASE, 1).await.unwrap_err(),
        outbox.ack(owner, &[id]).await.unwrap_err(),
        outbox
            .abandon(owner, &[id], Abandon::default())
            .await
            .unwrap_err(),
        outbox.fail(owner, &[id], "no").await.unwrap_err(),
        outbox.reap().await.unwrap_err(),
        outbox.counts().await.unwrap_err(),
        outbox.cleanup(DAY).await.unwrap_err(),
        room.joins().start(&NewJoin::new(1)).await.unwrap_err(),
        room.verify().await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
        assert!(error.to_string().contains("deploy"), "{error}");
    }
    assert!(empty.tables().await.is_empty());
}

/// Shows OBX-110.
async fn deploying_again_changes_nothing(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    let tables = fixture.tables().await;
    for _ in 0..3 {
        fixture.room.deploy().await.unwrap();
        fixture.options().deploy(true).connect().await.unwrap();
    }

    assert_eq!(fixture.tables().await, tables);
    assert_eq!(fixture.claim(10).await.1, [id]);
    fixture.room.verify().await.unwrap();
}

/// Shows OBX-110.
async fn many_may_deploy_at_once(fixture: Fixture) {
    let empty = Fixture::empty(fixture.backend).await;
    let mut deployments = Vec::new();
    for _ in 0..8 {
        let room = empty.again().await;
        deployments.push(tokio::spawn(async move { room.deploy().await }));
    }
    for deployment in deployments {
        deployment.await.unwrap().unwrap();
    }
    assert_eq!(
        empty
            .number("SELECT count(*) FROM {outbox_schema} WHERE version = 1")
            .await,
        1
    );
    use_everything(&empty.room).await;
}

/// Shows OBX-108, OBX-109.
async fn verify_says_what_is_wrong(fixture: Fixture) {
    fixture.room.verify().await.unwrap();

    fixture
        .sql("INSERT INTO {outbox_schema} (version, name, checksum) VALUES (99, 'x', 'x')")
        .await;
    let newer = fixture.room.verify().await.unwrap_err();
    assert_eq!(newer.kind(), ErrorKind::Schema);
    assert!(newer.to_string().contains("newer"), "{newer}");
    assert_eq!(
        fixture.room.deploy().await.unwrap_err().kind(),
        ErrorKind::Schema,
        "a newer schema is not touched"
    );
    fixture
        .sql("DELETE FROM {outbox_schema} WHERE version = 99")
        .await;
    fixture.room.verify().await.unwrap();

    fixture
        .sql(match fixture.backend {
            Backend::Sqlite | Backend::MySql => "DROP TABLE {outbox_dead}",
            Backend::Postgres => "DROP TABLE {outbox_dead} CASCADE",
            Backend::SqlServer => "DROP TABLE {OutboxKey}",
        })
        .await;
    assert_eq!(
        fixture.room.verify().await.unwrap_err().kind(),
        ErrorKind::Schema
    );
}

/// A procedure or view that was lost is noticed, and brought back by the next deployment.
///
/// Shows OBX-108, OBX-112.
async fn what_was_lost_is_deployed_again(fixture: Fixture) {
    fixture
        .sql(match fixture.backend {
            Backend::Sqlite | Backend::MySql => "DROP VIEW {outbox_all}",
            Backend::Postgres => "DROP FUNCTION {outbox_claim}",
            Backend::SqlServer => "DROP PROCEDURE {Outbox_Claim}",
        })
        .await;

    assert_eq!(
        fixture.room.verify().await.unwrap_err().kind(),
        ErrorKind::Schema
    );
    fixture.room.deploy().await.unwrap();
    fixture.room.verify().await.unwrap();
    use_everything(&fixture.room).await;
}

/// People who run migrations of their own print the script and run it.
///
/// Shows OBX-108, OBX-109, OBX-110.
async fn the_printed_schema_is_the_deployed_one(fixture: Fixture) {
    let empty = Fixture::empty(fixture.backend).await;
    let script = empty.options().schema_sql().unwrap();
    empty.sql_as_is(&script).await;

    empty.room.verify().await.unwrap();
    assert_eq!(empty.tables().await, fixture.tables().await);
    let tables = empty.tables().await;
    empty.room.deploy().await.unwrap();
    assert_eq!(empty.tables().await, tables);
    use_everything(&empty.room).await;
}

/// Shows OBX-111, C-02.
async fn tables_may_have_other_names(fixture: Fixture) {
    let names = |options: Options| {
        options
            .outbox_table("Sent")
            .inbox_table("Received")
            .join_table("Groups")
            .join_member_table("Steps")
    };
    let room = names(fixture.options())
        .deploy(true)
        .connect()
        .await
        .unwrap();
    use_everything(&room).await;

    let tables = fixture.tables().await;
    for table in [
        "Sent",
        "Sent_done",
        "Sent_dead",
        "Received",
        "Groups",
        "Steps",
    ] {
        assert!(
            tables.contains(&table.to_owned()),
            "{table} is missing in {tables:?}"
        );
    }
    assert_eq!(
        fixture.rows("outbox").await,
        0,
        "the other store's table is untouched"
    );
    fixture.room.verify().await.unwrap();
}

/// Shows OBX-111, C-02.
async fn two_modules_share_a_database(fixture: Fixture) {
    let billing = module(&fixture, "billing")
        .deploy(true)
        .connect()
        .await
        .unwrap();
    use_everything(&billing).await;
    assert_eq!(fixture.rows("outbox").await, 0);

    let id = fixture.enqueue(1).await[0];
    assert_eq!(billing.outbox().get(id).await.unwrap(), None);
    let theirs = billing
        .outbox()
        .claim(OwnerToken::new(), LEASE, 10)
        .await
        .unwrap();
    assert!(theirs.iter().all(|message| message.id != id));
    assert_eq!(fixture.claim(10).await.1, [id]);
}

/// Names go into SQL: what is no plain word is refused before anything is said to a database.
///
/// Shows OBX-123, C-53.
async fn names_that_inject_are_refused(fixture: Fixture) {
    fixture.enqueue(1).await;
    let bad = [
        "",
        " ",
        "a b",
        "a\"; DROP TABLE outbox; --",
        "a'b",
        "a.b",
        "a;b",
        "1a",
        "a-b",
        "a\0b",
        "ä",
        "{outbox}",
        "$1",
        "a\nb",
    ];
    for name in bad {
        let all = [
            (fixture.options().schema(name), "schema"),
            (fixture.options().outbox_table(name), "outbox_table"),
            (fixture.options().inbox_table(name), "inbox_table"),
            (fixture.options().join_table(name), "join_table"),
            (
                fixture.options().join_member_table(name),
                "join_member_table",
            ),
        ];
        for (options, param) in all {
            let error = options.schema_sql().unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::InvalidArgument { param },
                "{name:?}"
            );
            let error = options.deploy(true).connect().await.unwrap_err();
            assert_eq!(error.param(), Some(param), "{name:?}");
        }
    }
    let too_long = fixture
        .options()
        .schema(&"x".repeat(49))
        .connect()
        .await
        .unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::OutOfRange { param: "schema" });
    let collision = fixture
        .options()
        .inbox_table("outbox_done")
        .connect()
        .await
        .unwrap_err();
    assert_eq!(collision.param(), Some("inbox_table"));
    assert_eq!(fixture.rows("outbox").await, 1);
}

/// A name that is a word of SQL is still only a name.
///
/// Shows OBX-111.
async fn a_word_of_sql_is_a_good_name(fixture: Fixture) {
    let options = fixture
        .options()
        .outbox_table("select")
        .inbox_table("where")
        .join_table("table")
        .join_member_table("order");
    use_everything(&options.deploy(true).connect().await.unwrap()).await;
}

/// Shows C-53.
async fn impossible_options_are_refused(fixture: Fixture) {
    let too_long = "x".repeat(101);
    for (options, param) in [
        (fixture.options().connections(0), "connections"),
        (fixture.options().connections(1001), "connections"),
        (fixture.options().worker(""), "worker"),
        (fixture.options().worker(too_long), "worker"),
        (fixture.options().worker("a\0"), "worker"),
        (fixture.options().join_wait_topic(""), "join_wait_topic"),
        (Options::new("mysql://localhost"), "url"),
        (Options::new(""), "url"),
        (Options::new("sqlite:"), "url"),
    ] {
        assert_eq!(options.connect().await.unwrap_err().param(), Some(param));
    }
}

/// A role with SELECT, INSERT, UPDATE, DELETE and EXECUTE can do everything that a running system
/// does; without EXECUTE it cannot claim.
///
/// Shows OBX-123, OBX-124, OBX-109.
async fn a_role_needs_no_more_than_its_rights(fixture: Fixture) {
    let schema = fixture.schema.clone().unwrap();
    let role = format!("{schema}_app");
    fixture
        .sql(&format!(
            "CREATE ROLE {role} LOGIN; \
             REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC; \
             GRANT USAGE ON SCHEMA {schema} TO {role}; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
        ))
        .await;
    let (before, after) = fixture.url.split_once("://").unwrap();
    let (_, place) = after.split_once('@').unwrap();
    let url = format!("{before}://{role}@{place}");
    let room = Options::new(url)
        .schema(&schema)
        .connections(2)
        .connect()
        .await
        .unwrap();

    fixture.enqueue(1).await;
    let refused = room
        .outbox()
        .claim(OwnerToken::new(), LEASE, 1)
        .await
        .unwrap_err();
    assert_eq!(
        (refused.kind(), refused.code()),
        (ErrorKind::Database, Some("42501"))
    );
    fixture
        .sql(&format!(
            "DELETE FROM {{outbox}}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}"
        ))
        .await;
    use_everything(&room).await;
    fixture.age("outbox_done", "processed_at", 8 * DAY).await;
    assert_eq!(room.outbox().cleanup(7 * DAY).await.unwrap(), 1);
    assert!(room.deploy().await.is_err(), "it may not change the schema");

    drop(room);
    fixture
        .sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

testkit::mount!(
    deploying_creates_every_table_and_index,
    a_store_may_deploy_when_it_is_opened,
    without_deployment_nothing_is_ever_created,
    deploying_again_changes_nothing,
    many_may_deploy_at_once,
    verify_says_what_is_wrong,
    what_was_lost_is_deployed_again,
    the_printed_schema_is_the_deployed_one,
    tables_may_have_other_names,
    two_modules_share_a_database,
    names_that_inject_are_refused,
    a_word_of_sql_is_a_good_name,
    impossible_options_are_refused;
    postgres:
    deploying_creates_every_procedure,
    a_role_needs_no_more_than_its_rights,
);
