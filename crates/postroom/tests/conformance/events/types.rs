//! From the name of a type back to the type, and payloads of other formats.

use std::collections::BTreeMap;

use postroom::events::{EventTypes, Json, Serializer, StoredEvent, UnitOfWork};
use postroom::{ErrorKind, List, OwnerToken, State};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use testkit::{Fixture, LEASE};

use super::shop::{Custom, Order, OrderEvent, Shop, Stock, order_types};

/// What a billing module makes of the events that it knows.
#[derive(Debug, PartialEq)]
enum Known {
    Order(OrderEvent),
    Stock(Taken),
}

#[derive(Debug, PartialEq, Deserialize)]
struct Taken {
    amount: i64,
}

/// Shows DEEP-11.
async fn an_unknown_type_is_an_error_of_that_message_alone(fixture: Fixture) {
    let mut shop = Shop::open(fixture.clone()).await;
    shop.save(1, &mut Order::placed(1)).await;
    let mut unknown = Stock::with(Custom {
        event_type: "stock.lost",
        ..Custom::new()
    });
    shop.save(2, &mut unknown).await;
    shop.save(3, &mut Stock::with(Custom::new())).await;
    let types = EventTypes::new()
        .register("orders.placed", Known::Order)
        .unwrap()
        .register("stock.taken", Known::Stock)
        .unwrap();

    let (outbox, owner) = (fixture.room.outbox(), OwnerToken::new());
    let mut decoded = Vec::new();
    for message in outbox.claim(owner, LEASE, 10).await.unwrap() {
        match types.decode(&message) {
            Ok(event) => {
                decoded.push(event);
                outbox.ack(owner, &[message.id]).await.unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound { what: "event type" });
                let reason = error.to_string();
                outbox.fail(owner, &[message.id], &reason).await.unwrap();
            }
        }
    }

    assert_eq!(
        decoded,
        [
            Known::Order(OrderEvent::Placed { order: 1 }),
            Known::Stock(Taken { amount: 3 })
        ]
    );
    let dead = outbox.list(&List::new(State::Dead)).await.unwrap();
    assert_eq!(dead.len(), 1);
    let reason = dead[0].progress.last_error.as_deref().unwrap();
    assert!(
        reason.contains("`stock.lost`") && !reason.contains("amount"),
        "{reason}"
    );
}

/// Shows DEEP-11.
#[test]
fn what_cannot_be_read_says_so_without_the_payload() {
    let headers = |event_type: Option<&str>| -> BTreeMap<String, String> {
        event_type
            .map(|name| ("event-type".to_owned(), name.to_owned()))
            .into_iter()
            .collect()
    };
    let types = EventTypes::new()
        .register("stock.taken", |taken: Taken| taken)
        .unwrap();
    let too_long = "x".repeat(10_000);
    let cases = [
        (None, "{}", ErrorKind::InvalidArgument { param: "message" }),
        (
            Some("stock.taken"),
            r#"{"amount":"hunter2"}"#,
            ErrorKind::InvalidArgument { param: "payload" },
        ),
        (
            Some("stock.taken"),
            "hunter2",
            ErrorKind::InvalidArgument { param: "payload" },
        ),
        (
            Some("Stock.taken"),
            r#"{"amount":3}"#,
            ErrorKind::NotFound { what: "event type" },
        ),
        (
            Some(&too_long),
            "hunter2",
            ErrorKind::NotFound { what: "event type" },
        ),
    ];
    for (event_type, payload, kind) in cases {
        let headers = headers(event_type);
        let event = StoredEvent {
            headers: &headers,
            payload,
        };
        let error = types.decode(event).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(!error.to_string().contains("hunter2"));
        assert!(error.to_string().len() < 500);
        assert!(!format!("{event:?}").contains("hunter2"));
        assert_eq!(event.occurred_on(), None);
    }
}

/// Shows DEEP-11.
#[test]
fn a_name_stands_for_one_type() {
    let types = EventTypes::new()
        .register("stock.taken", Known::Stock)
        .unwrap();
    let error = types.register("stock.taken", Known::Order).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::AlreadyExists { what: "event type" }
    );
    let text = error.to_string();
    assert!(
        text.contains("`stock.taken`") && text.contains("Taken") && text.contains("OrderEvent"),
        "{text}"
    );
    let nameless = EventTypes::new().register("", Known::Stock).unwrap_err();
    assert_eq!(nameless.param(), Some("event_type"));
}

/// JSON, backwards: nobody reads it by accident.
#[derive(Clone, Copy)]
struct Reversed;

impl Serializer for Reversed {
    type Error = <Json as Serializer>::Error;

    fn serialize<T: Serialize>(&self, value: &T) -> Result<String, Self::Error> {
        Ok(Json.serialize(value)?.chars().rev().collect())
    }

    fn deserialize<T: DeserializeOwned>(&self, payload: &str) -> Result<T, Self::Error> {
        Json.deserialize(&payload.chars().rev().collect::<String>())
    }
}

/// Shows DEEP-11, DEEP-20.
async fn payloads_may_have_another_format(fixture: Fixture) {
    let room = fixture.room.clone();
    let mut shop = Shop::open(fixture).await;
    let mut order = Order::placed(7);
    let mut transaction = shop.transaction_with_order(7).await;
    let saved = UnitOfWork::with_serializer(&room, Reversed)
        .collect(&mut order)
        .save_in(&mut transaction)
        .await
        .unwrap();
    transaction.commit().await;
    saved.committed();

    let messages = shop.claim().await;
    assert_eq!(messages[0].payload, r#"}}7:"redro"{:"decalP"{"#);
    let types = EventTypes::with_serializer(Reversed)
        .register("orders.placed", Known::Order)
        .unwrap();
    assert_eq!(
        types.decode(&messages[0]).unwrap(),
        Known::Order(OrderEvent::Placed { order: 7 })
    );
    assert!(order_types().decode(&messages[0]).is_err());
}

testkit::mount!(
    an_unknown_type_is_an_error_of_that_message_alone,
    payloads_may_have_another_format,
);
