//! `postroom cleanup`.

use super::*;

async fn what_was_done_long_ago_is_deleted(fixture: Fixture) {
    let room = &fixture.room;
    let owner = OwnerToken::new();
    for _ in 0..3 {
        send(room, &Message::new("t", "x")).await;
    }
    let claimed = room.outbox().claim(owner, LEASE, 3).await.expect("claim");
    let ids: Vec<WorkItemId> = claimed.iter().map(|message| message.id).collect();
    room.outbox().ack(owner, &ids).await.expect("ack");
    let done = InboxMessageId::new("bank", "p1");
    room.inbox().already_processed(&done).await.expect("seen");
    room.inbox().mark_processed(&done).await.expect("done");
    let join = room.joins().start(&NewJoin::new(1)).await.expect("start");
    room.joins().cancel(join).await.expect("cancel");
    let out = on(&fixture, &["cleanup", "--older-than", "1d"]).ok();
    assert_eq!(
        out,
        "outbox: deleted 0 messages\ninbox: deleted 0 messages\njoins: deleted 0 joins\n"
    );
    age(&fixture).await;
    let out = on(
        &fixture,
        &["cleanup", "--older-than", "1d", "--outbox", "--json"],
    )
    .json();
    assert_eq!(out, serde_json::json!({"deleted": {"outbox": 3}}));
    let out = on(&fixture, &["cleanup", "--older-than", "1d", "--json"]).json();
    assert_eq!(
        out,
        serde_json::json!({"deleted": {"outbox": 0, "inbox": 1, "joins": 1}})
    );
    assert_eq!(
        actions(room).await.len(),
        3,
        "one for each that deleted something"
    );
    on(&fixture, &["cleanup", "--older-than", "0s"]).refused("--older-than");
    on(&fixture, &["cleanup"]).misused("--older-than");
}

/// Makes everything two days older.
async fn age(fixture: &Fixture) {
    let earlier = |column: &str| match fixture.backend {
        Backend::Sqlite | Backend::MySql => format!("{column} = {column} - 172800000000"),
        Backend::Postgres => format!("{column} = {column} - interval '2 days'"),
        Backend::SqlServer => format!("{column} = DATEADD(DAY, -2, {column})"),
    };
    for (table, column) in [
        ("outbox_done", "processed_at"),
        ("inbox_seen", "last_seen"),
        ("outbox_join", "last_updated_at"),
    ] {
        fixture
            .sql(&format!("UPDATE {{{table}}} SET {}", earlier(column)))
            .await;
    }
}

testkit::mount!(what_was_done_long_ago_is_deleted);
