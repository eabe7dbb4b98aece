//! The small values of requests: ages, limits, times, hashes, payloads.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{KnownFormat, RefOr};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use super::read;
use crate::age;

/// An age or a delay: a number and a unit, such as `90s`, `15m`, `36h` or `7d`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Age(pub(super) Duration);

impl<'de> Deserialize<'de> for Age {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const DIGITS: usize = 6;
        let text = String::deserialize(deserializer)?;
        let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
        let known = matches!(unit, "s" | "m" | "h" | "d");
        if !known || number.is_empty() || number.len() > DIGITS {
            return Err(D::Error::custom(
                "expected a number of up to six digits and a unit (s, m, h or d), such as 90s, 15m, 36h or 7d",
            ));
        }
        age::parse(&text).map(Self).map_err(D::Error::custom)
    }
}

impl PartialSchema for Age {
    fn schema() -> RefOr<Schema> {
        text("An age or a delay: a number and a unit.")
            .pattern(Some("^[0-9]{1,6}[smhd]$"))
            .examples(["15m"])
            .into()
    }
}

impl ToSchema for Age {}

/// How many items a page may have, 1 to 1000.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit(pub(super) u32);

impl Limit {
    pub(super) const DEFAULT: Self = Self(100);
    pub(super) const MOST: u32 = 1_000;
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse()
            .ok()
            .filter(|limit| digits && (1..=Self::MOST).contains(limit))
            .map(Self)
            .ok_or_else(|| D::Error::custom("expected a number from 1 to 1000"))
    }
}

impl PartialSchema for Limit {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .description(Some("How many items a page may have."))
            .minimum(Some(1))
            .maximum(Some(Self::MOST))
            .default(Some(Self::DEFAULT.0.into()))
            .into()
    }
}

impl ToSchema for Limit {}

/// A point in time, RFC 3339.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time(pub(super) SystemTime);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        age::parse_stamp(&text).map(Self).map_err(D::Error::custom)
    }
}

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&age::stamp(self.0))
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        text("A point in time, RFC 3339.")
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .examples(["2030-01-31T08:00:00Z"])
            .into()
    }
}

impl ToSchema for Time {}

/// A name: a topic, a source, a key. 1 to 255 characters, none of them NUL.
#[derive(Debug, Clone)]
pub(super) struct Name(pub(super) String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if name.is_empty() || name.chars().count() > 255 || name.contains('\0') {
            return Err(D::Error::custom(
                "expected 1 to 255 characters, none of them NUL",
            ));
        }
        Ok(Self(name))
    }
}

impl PartialSchema for Name {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .min_length(Some(1))
            .max_length(Some(255))
            .pattern(Some("^[^\\u0000]+$"))
            .into()
    }
}

impl ToSchema for Name {}

/// Small facts about a message, by name.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Headers(pub(super) BTreeMap<String, String>);

impl PartialSchema for Headers {
    fn schema() -> RefOr<Schema> {
        let value = ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[^\\u0000]*$"));
        ObjectBuilder::new()
            .description(Some("Small facts about a message, by name."))
            .property_names(Some(Name::schema()))
            .additional_properties(Some(value))
            .examples([serde_json::json!({"content-type": "application/json"})])
            .into()
    }
}

impl ToSchema for Headers {}

/// How many, at least one. JSON knows no integers: `3.0` is three.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count(pub(super) i32);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = serde_json::Number::deserialize(deserializer)?.to_string();
        text.strip_suffix(".0")
            .unwrap_or(&text)
            .parse()
            .ok()
            .filter(|count| *count >= 1)
            .map(Self)
            .ok_or_else(|| D::Error::custom("expected a number from 1 to 2147483647"))
    }
}

impl PartialSchema for Count {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1))
            .maximum(Some(i32::MAX))
            .into()
    }
}

impl ToSchema for Count {}

/// A UUID with hyphens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reference(pub(super) Uuid);

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        read::uuid(&text)
            .map(Self)
            .ok_or_else(|| D::Error::custom("expected a UUID"))
    }
}

impl PartialSchema for Reference {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid)))
            .examples(["01929f3a-5c6e-7a31-9d0b-3f1f2f6f7a10"])
            .into()
    }
}

impl ToSchema for Reference {}

/// A hash of a message's content, in hexadecimal: 1 to 64 bytes.
#[derive(Debug, Clone)]
pub(super) struct Hash(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|digit| {
                digit
                    .to_digit(16)
                    .and_then(|digit| u8::try_from(digit).ok())
            })
            .collect();
        digits
            .filter(|digits| (2..=128).contains(&digits.len()) && digits.len() % 2 == 0)
            .map(|digits| {
                Self(
                    digits
                        .chunks(2)
                        .map(|pair| pair[0] << 4 | pair[1])
                        .collect(),
                )
            })
            .ok_or_else(|| D::Error::custom("expected 1 to 64 bytes in hexadecimal"))
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&text)
    }
}

impl PartialSchema for Hash {
    fn schema() -> RefOr<Schema> {
        text("A hash of the content, in hexadecimal.")
            .pattern(Some("^([0-9a-fA-F]{2}){1,64}$"))
            .examples(["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"])
            .into()
    }
}

impl ToSchema for Hash {}

/// What a message carries: text, or any JSON, which is kept as its text without white space. Numbers,
/// the order of keys and escapes stay as they were sent.
#[derive(Clone)]
pub(super) struct Payload(pub(super) String);

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let json = raw.get();
        if json.starts_with('"') {
            return serde_json::from_str(json)
                .map(Self)
                .map_err(|_| D::Error::custom("expected text that is Unicode"));
        }
        Ok(Self(compact(json)))
    }
}

impl PartialSchema for Payload {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::SchemaType::AnyValue)
            .description(Some(
                "Text, or any JSON, which is kept as its text without white space. The character NUL is refused.",
            ))
            .pattern(Some("^[^\\u0000]*$"))
            .into()
    }
}

impl ToSchema for Payload {}

/// JSON without white space between its tokens.
fn compact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for character in json.chars() {
        if quoted {
            quoted = escaped || character != '"';
            escaped = !escaped && character == '\\';
        } else if character.is_ascii_whitespace() {
            continue;
        } else {
            quoted = character == '"';
        }
        text.push(character);
    }
    text
}

fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(json: &str) -> String {
        serde_json::from_str::<Payload>(json).expect("a payload").0
    }

    #[test]
    fn text_is_a_payload_as_it_is() {
        assert_eq!(payload(r#""a \"b\"\n""#), "a \"b\"\n");
        assert_eq!(payload(r#""""#), "");
    }

    #[test]
    fn json_loses_nothing_but_white_space() {
        assert_eq!(
            payload("{ \"z\" : 1.00,\n\t\"a\":[ 1e400, 123456789012345678901234567890 ] }"),
            r#"{"z":1.00,"a":[1e400,123456789012345678901234567890]}"#
        );
        assert_eq!(
            payload(r#"{"a b":" \" \\ ", "c": "\u0000"}"#),
            r#"{"a b":" \" \\ ","c":"\u0000"}"#
        );
        assert_eq!(payload("null"), "null");
        assert_eq!(payload("[ ]"), "[]");
    }

    #[test]
    fn ages_limits_hashes_and_ids_are_strict() {
        for (wrong, kind) in [
            ("\"5\"", "age"),
            ("\"9999999d\"", "age"),
            ("\"d\"", "age"),
            ("\"7\u{e9}\"", "age"),
            ("5", "age"),
        ] {
            assert!(
                serde_json::from_str::<Age>(wrong).is_err(),
                "{kind} {wrong}"
            );
        }
        for wrong in ["\"0\"", "\"1001\"", "\"+5\"", "\"\"", "\"ten\""] {
            assert!(serde_json::from_str::<Limit>(wrong).is_err(), "{wrong}");
        }
        for wrong in ["\"\"", "\"f\"", "\"fg\"", "\"\u{e9}\u{e9}\""] {
            assert!(serde_json::from_str::<Hash>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            serde_json::from_str::<Hash>("\"0aFF\"").expect("a hash").0,
            [0x0a, 0xff]
        );
        for wrong in [
            "\"01929f3a5c6e7a319d0b3f1f2f6f7a10\"",
            "\"{01929f3a-5c6e-7a31-9d0b-3f1f2f6f7a10}\"",
            "\"\"",
        ] {
            assert!(serde_json::from_str::<Reference>(wrong).is_err(), "{wrong}");
        }
    }
}
