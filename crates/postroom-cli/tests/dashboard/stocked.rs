//! A store with something on every page.

use super::*;

/// Enqueues messages and gives them up.
pub(crate) async fn die(room: &Postroom, messages: &[Message], error: &str) -> Vec<WorkItemId> {
    let receipts = room
        .outbox()
        .enqueue_many(messages)
        .await
        .expect("an enqueue");
    let ids: Vec<_> = receipts
        .iter()
        .map(|receipt| receipt.work_item_id)
        .collect();
    let owner = OwnerToken::new();
    let claimed = room.outbox().claim(owner, LEASE, messages.len()).await;
    assert_eq!(claimed.expect("a claim").len(), messages.len());
    room.outbox()
        .fail(owner, &ids, error)
        .await
        .expect("a fail");
    ids
}

/// A shop on a busy day: messages in every state, some dead, webhooks, a join that waits.
pub(crate) struct Shop {
    pub(crate) dead: WorkItemId,
    pub(crate) retrying: WorkItemId,
    pub(crate) join: JoinId,
}

pub(crate) async fn shop(room: &Postroom) -> Shop {
    let outbox = room.outbox();
    let refused: Vec<_> = (0..7)
        .map(|n| {
            Message::new(
                "payment.capture",
                format!(r#"{{"order":{n},"amount":"{n}9.90"}}"#),
            )
            .correlation(format!("order-{n}"))
            .header("content-type", "application/json")
        })
        .collect();
    let dead = die(
        room,
        &refused,
        "the payment provider answered 402: card declined",
    )
    .await[0];
    let lost = [Message::new("mail.welcome", "{}").correlation("user-19")];
    die(room, &lost, "no such mailbox").await;

    let done: Vec<_> = (0..30)
        .map(|n| {
            Message::new("order.created", format!(r#"{{"order":{n}}}"#))
                .correlation(format!("order-{n}"))
        })
        .collect();
    outbox.enqueue_many(&done).await.expect("an enqueue");
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 100).await.expect("a claim");
    let ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
    outbox.ack(owner, &ids).await.expect("an ack");

    let join = room
        .joins()
        .start(&NewJoin::new(5).grouping_key("report-2024-11"))
        .await
        .expect("a join");
    let steps: Vec<_> = ["customers", "orders", "invoices", "stock"]
        .iter()
        .map(|what| Message::new(format!("extract.{what}"), "{}").join(join))
        .collect();
    outbox.enqueue_many(&steps).await.expect("an enqueue");
    room.joins()
        .enqueue_wait(&JoinWait::new(join, "report.build", "{}"))
        .await
        .expect("a wait");
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 2).await.expect("a claim");
    outbox.ack(owner, &[claimed[0].id]).await.expect("an ack");
    let retrying = claimed[1].id;
    let retry = Abandon::after(Duration::from_secs(600)).error("the warehouse does not answer");
    outbox
        .abandon(owner, &[retrying], retry)
        .await
        .expect("an abandon");

    let more: Vec<_> = (0..70)
        .map(|n| {
            Message::new("stock.reserve", format!(r#"{{"item":{n}}}"#))
                .correlation(format!("order-{n}"))
        })
        .collect();
    outbox.enqueue_many(&more).await.expect("an enqueue");
    let later =
        Message::new("mail.reminder", "{}").due_at(SystemTime::now() + Duration::from_secs(7_200));
    outbox.enqueue(&later).await.expect("an enqueue");
    let owner = OwnerToken::new();
    outbox.claim(owner, LEASE, 6).await.expect("a claim");

    let inbox = room.inbox();
    for n in 0..12 {
        let inbound = Inbound::new(
            "stripe",
            format!("evt_{n}"),
            "payment.succeeded",
            r#"{"ok":true}"#,
        )
        .hash([n; 32]);
        inbox.enqueue(&inbound).await.expect("an enqueue");
    }
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, 6).await.expect("a claim");
    let ids: Vec<_> = claimed.iter().map(|message| message.id.clone()).collect();
    inbox.ack(owner, &ids[..4]).await.expect("an ack");
    inbox
        .fail(owner, &ids[4..5], "the order is not known")
        .await
        .expect("a fail");
    Shop {
        dead,
        retrying,
        join,
    }
}

/// Every page there is, with something on it.
pub(crate) fn pages(shop: &Shop) -> Vec<String> {
    [
        "/",
        "/?window=3600",
        "/topics",
        "/messages",
        "/messages?state=dead&topic=payment.capture&age=newer:1h",
        "/dead",
        "/dead?queue=inbox",
        "/inbox",
        "/inbox/message?source=stripe&id=evt_4",
        "/joins",
        "/joins?key=report-2024-11",
        "/stores",
        "/audit",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([
        format!("/messages/{}", shop.dead),
        format!("/messages/{}", shop.retrying),
        format!("/joins/{}", shop.join),
    ])
    .collect()
}
