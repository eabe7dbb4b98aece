//! How events become text, and text events again.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The format of payloads. [`Json`] is the usual one; any other that fits into text will do.
///
/// ```
/// use postroom::events::Serializer;
/// use serde::{Serialize, de::DeserializeOwned};
///
/// /// For people who read payloads in the database.
/// struct PrettyJson;
///
/// impl Serializer for PrettyJson {
///     type Error = serde_json::Error;
///
///     fn serialize<T: Serialize>(&self, value: &T) -> Result<String, Self::Error> {
///         serde_json::to_string_pretty(value)
///     }
///
///     fn deserialize<T: DeserializeOwned>(&self, payload: &str) -> Result<T, Self::Error> {
///         serde_json::from_str(payload)
///     }
/// }
/// ```
pub trait Serializer: Send + Sync {
    /// What went wrong. It goes nowhere: it may quote the content, and errors are logged and stored.
    type Error;

    /// A value as text without NUL characters.
    ///
    /// # Errors
    /// When the value cannot be written in this format.
    fn serialize<T: Serialize>(&self, value: &T) -> Result<String, Self::Error>;

    /// The value that a text stands for.
    ///
    /// # Errors
    /// When the text is not of this format, or not such a value.
    fn deserialize<T: DeserializeOwned>(&self, payload: &str) -> Result<T, Self::Error>;
}

/// Payloads as JSON.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl Serializer for Json {
    type Error = serde_json::Error;

    fn serialize<T: Serialize>(&self, value: &T) -> serde_json::Result<String> {
        serde_json::to_string(value)
    }

    fn deserialize<T: DeserializeOwned>(&self, payload: &str) -> serde_json::Result<T> {
        serde_json::from_str(payload)
    }
}
