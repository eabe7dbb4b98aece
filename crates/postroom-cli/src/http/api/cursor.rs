//! Cursors: where a long list goes on. They are for the list that gave them, and say nothing to others.

use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use crate::http::Problem;
use crate::position::Position;

/// Which list a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Of {
    Messages = 1,
    Dead = 2,
    Inbox = 3,
    Joins = 4,
    Members = 5,
    Audit = 6,
}

/// In which order a list comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub(super) enum Order {
    /// What was enqueued first.
    #[default]
    Oldest = 1,
    /// What was enqueued last.
    Newest = 2,
}

/// A cursor as a caller sends it.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Cursor(String);

impl Cursor {
    /// The one that goes on after this item.
    pub(super) fn after(of: Of, order: Order, id: Uuid) -> String {
        let mut bytes = vec![of as u8, order as u8];
        bytes.extend(id.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The same in a list that is numbered.
    pub(super) fn after_number(of: Of, order: Order, number: i64) -> String {
        Self::after(of, order, Uuid::from_u64_pair(0, number.unsigned_abs()))
    }

    /// The number that the list goes on after.
    pub(super) fn read_number(&self, of: Of, order: Order) -> Result<i64, Problem> {
        let (_, number) = self.read(of, order)?.as_u64_pair();
        i64::try_from(number)
            .map_err(|_| Problem::bad("cursor", "expected the `next` of an answer"))
    }

    /// The item that the list goes on after.
    pub(super) fn read(&self, of: Of, order: Order) -> Result<Uuid, Problem> {
        let bytes = URL_SAFE_NO_PAD
            .decode(&self.0)
            .map_err(|_| Problem::bad("cursor", "expected the `next` of an answer"))?;
        let (place, id) = bytes
            .split_at_checked(2)
            .and_then(|(place, id)| Some((place, Uuid::from_slice(id).ok()?)))
            .ok_or_else(|| Problem::bad("cursor", "expected the `next` of an answer"))?;
        if place != [of as u8, order as u8] {
            return Err(foreign());
        }
        Ok(id)
    }
}

/// It looks like a cursor, and is not of this list.
fn foreign() -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "this cursor belongs to another list, or to another order",
    )
    .param("cursor")
}

impl PartialSchema for Cursor {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Where to go on: the `next` of the page before."))
            .pattern(Some("^[A-Za-z0-9_-]{24}$"))
            .into()
    }
}

impl ToSchema for Cursor {}

/// A cursor of the inbox, where not every message has an id: it is as long as what it goes on after.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct InboxCursor(String);

impl InboxCursor {
    /// No shorter than a cursor of another list.
    const SHORTEST: usize = 24;

    /// The one that goes on after this message.
    pub(super) fn after(order: Order, position: &Position) -> String {
        let place = [Of::Inbox as u8, order as u8];
        URL_SAFE_NO_PAD.encode([&place, position.to_string().as_bytes()].concat())
    }

    /// The message that the list goes on after.
    pub(super) fn read(&self, order: Order) -> Result<Position, Problem> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if self.0.len() < Self::SHORTEST || !self.0.bytes().all(fits) {
            return Err(Problem::bad("cursor", "expected the `next` of an answer"));
        }
        let bytes = URL_SAFE_NO_PAD.decode(&self.0).unwrap_or_default();
        bytes
            .strip_prefix(&[Of::Inbox as u8, order as u8])
            .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok())
            .ok_or_else(foreign)
    }
}

impl PartialSchema for InboxCursor {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Where to go on: the `next` of the page before."))
            .pattern(Some("^[A-Za-z0-9_-]{24,}$"))
            .into()
    }
}

impl ToSchema for InboxCursor {}

/// One page out of `asked` for items: those that fit, and the cursor when there are more.
pub(super) fn page<T>(
    mut items: Vec<T>,
    limit: u32,
    cursor: impl FnOnce(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(cursor);
    (items, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_for_its_list_and_order_only() {
        let id = Uuid::now_v7();
        let cursor = Cursor(Cursor::after(Of::Dead, Order::Newest, id));
        assert_eq!(cursor.0.len(), 24);
        assert_eq!(cursor.read(Of::Dead, Order::Newest).expect("its list"), id);
        for (of, order) in [(Of::Messages, Order::Newest), (Of::Dead, Order::Oldest)] {
            assert_eq!(cursor.read(of, order).expect_err("another").status(), 422);
        }
        for wrong in [
            "",
            "x",
            "AAAAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAAAAA=",
            "!AAAAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            let refused = Cursor(wrong.to_owned()).read(Of::Dead, Order::Newest);
            assert_eq!(refused.expect_err(wrong).status(), 400);
        }
    }

    #[test]
    fn a_cursor_of_the_inbox_is_for_its_order_only() {
        let position: Position = "1763312345678901:stripe:evt_1".parse().expect("a place");
        let cursor = InboxCursor(InboxCursor::after(Order::Newest, &position));
        assert_eq!(cursor.read(Order::Newest).expect("its list"), position);
        assert_eq!(
            cursor.read(Order::Oldest).expect_err("another").status(),
            422
        );
        for wrong in ["", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAA="] {
            let refused = InboxCursor(wrong.to_owned()).read(Order::Newest);
            assert_eq!(refused.expect_err(wrong).status(), 400);
        }
        for foreign in ["AAAAAAAAAAAAAAAAAAAAAAAAA", "AwIAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            let refused = InboxCursor(foreign.to_owned()).read(Order::Newest);
            assert_eq!(refused.expect_err(foreign).status(), 422);
        }
    }

    #[test]
    fn a_page_has_a_cursor_only_when_there_is_more() {
        let cursor = |item: &i32| item.to_string();
        assert_eq!(
            page(vec![1, 2, 3], 2, cursor),
            (vec![1, 2], Some("2".to_owned()))
        );
        assert_eq!(page(vec![1, 2], 2, cursor), (vec![1, 2], None));
        assert_eq!(page(Vec::new(), 2, cursor), (Vec::new(), None));
    }
}
