//! The audit trail: who did what to which messages.

use std::time::Duration;

use postroom::{AuditEntry, ErrorKind, WorkItemId};
use testkit::Fixture;

const DAY: Duration = Duration::from_secs(86_400);

/// An extension: no requirement asks for it.
async fn an_entry_comes_back_as_it_was_recorded_with_the_databases_time(fixture: Fixture) {
    let audit = fixture.room.audit();
    let before = fixture.now().await;
    let entry = AuditEntry::new("ada", "dead.purge", "topic=order.created")
        .count(12)
        .detail("older than 90d");
    audit.record(&entry).await.unwrap();

    let entries = audit.list(10, None).await.unwrap();
    let [found] = entries.as_slice() else {
        panic!("one entry, got {entries:?}");
    };
    assert_eq!(
        (found.actor.as_str(), found.action.as_str()),
        ("ada", "dead.purge")
    );
    assert_eq!(
        (found.subject.as_str(), found.count),
        ("topic=order.created", 12)
    );
    assert_eq!(found.detail.as_deref(), Some("older than 90d"));
    assert!(found.id > 0);
    assert!(found.at >= before && found.at <= fixture.now().await);
}

/// An extension: no requirement asks for it.
async fn entries_are_listed_newest_first_page_by_page(fixture: Fixture) {
    let audit = fixture.room.audit();
    for number in 0..7 {
        audit
            .record(&AuditEntry::new("ada", "dead.replay", number))
            .await
            .unwrap();
    }
    let mut subjects = Vec::new();
    let mut after = None;
    loop {
        let page = audit.list(3, after).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        subjects.extend(page.into_iter().map(|entry| entry.subject));
    }
    assert_eq!(subjects, ["6", "5", "4", "3", "2", "1", "0"]);
}

/// An extension: no requirement asks for it.
async fn what_was_done_to_a_message_is_found_by_its_id(fixture: Fixture) {
    let audit = fixture.room.audit();
    let (message, other) = (WorkItemId::new(), WorkItemId::new());
    for (action, subject) in [
        ("dead.replay", message),
        ("dead.replay", other),
        ("dead.purge", message),
    ] {
        audit
            .record(&AuditEntry::new("ada", action, subject))
            .await
            .unwrap();
    }
    let actions: Vec<_> = audit
        .of(message)
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.action)
        .collect();
    assert_eq!(actions, ["dead.purge", "dead.replay"]);
    assert_eq!(audit.of("nothing").await.unwrap(), []);
}

/// An extension: no requirement asks for it.
async fn a_bad_entry_is_refused_by_the_name_of_its_part(fixture: Fixture) {
    let audit = fixture.room.audit();
    let long = "x".repeat(256);
    for (entry, param) in [
        (AuditEntry::new("", "a", "s"), "actor"),
        (AuditEntry::new("a\0", "a", "s"), "actor"),
        (AuditEntry::new("a", long.as_str(), "s"), "action"),
        (AuditEntry::new("a", "a", ""), "subject"),
        (AuditEntry::new("a", "a", "x".repeat(601)), "subject"),
        (AuditEntry::new("a", "a", "s").count(u64::MAX), "count"),
    ] {
        let error = audit.record(&entry).await.unwrap_err();
        assert_eq!(error.param(), Some(param));
    }
    for limit in [0, 1_001] {
        let error = audit.list(limit, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "limit" });
    }
    assert_eq!(audit.of("").await.unwrap_err().param(), Some("subject"));
    assert_eq!(fixture.rows("outbox_audit").await, 0);
    // The longest subject fits into its index on both databases.
    let subject: String = ('\u{10000}'..).take(600).collect();
    audit
        .record(&AuditEntry::new("a", "a", &subject))
        .await
        .unwrap();
    assert_eq!(audit.of(&subject).await.unwrap().len(), 1);
}

/// An extension: no requirement asks for it.
async fn a_cleanup_deletes_what_is_older(fixture: Fixture) {
    let audit = fixture.room.audit();
    audit
        .record(&AuditEntry::new("a", "a", "old"))
        .await
        .unwrap();
    fixture.age("outbox_audit", "recorded_at", 2 * DAY).await;
    audit
        .record(&AuditEntry::new("a", "a", "new"))
        .await
        .unwrap();

    assert_eq!(
        audit.cleanup(Duration::ZERO).await.unwrap_err().param(),
        Some("older_than")
    );
    assert_eq!(audit.cleanup(DAY).await.unwrap(), 1);
    let left = audit.list(10, None).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].subject, "new");
}

testkit::mount!(
    an_entry_comes_back_as_it_was_recorded_with_the_databases_time,
    entries_are_listed_newest_first_page_by_page,
    what_was_done_to_a_message_is_found_by_its_id,
    a_bad_entry_is_refused_by_the_name_of_its_part,
    a_cleanup_deletes_what_is_older,
);
