//! Reading requests: query strings, bodies and paths become types, or a problem that names the parameter
//! at fault. What is wrong is told without quoting values: one of them may be a payload.

use axum::body::Bytes;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::http::{App, Problem};
use crate::refused::because;

/// The parameters of a query string. Unknown ones are refused.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let text = parts.uri.query().unwrap_or_default();
        let pairs = serde_urlencoded::Deserializer::new(form_pairs(text));
        serde_path_to_error::deserialize(pairs)
            .map(Self)
            .map_err(|error| refused(&error.path().to_string(), &error.into_inner().to_string()))
    }
}

fn form_pairs(text: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(text.as_bytes())
}

/// A body of JSON. Unknown fields are refused.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "expected a body of JSON: Content-Type: application/json",
            ));
        }
        let bytes = Bytes::from_request(request, app)
            .await
            .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body broke off"))?;
        // Serde would take an array for a struct, field by field.
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        if first.is_some_and(|byte| *byte == b'[') {
            let text = "expected a JSON object";
            return Err(Problem::new(StatusCode::BAD_REQUEST, text));
        }
        if let Ok(body) = serde_json::from_slice(&bytes) {
            return Ok(Self(body));
        }
        Err(why_not::<T>(&bytes))
    }
}

/// Reads a body that is known to be wrong once more, to find out where.
fn why_not<T: DeserializeOwned>(bytes: &[u8]) -> Problem {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut json) {
        Ok(_) => Problem::new(
            StatusCode::BAD_REQUEST,
            "expected one JSON value, and nothing after it",
        ),
        Err(error) if error.inner().is_data() => {
            refused(&error.path().to_string(), &error.inner().to_string())
        }
        Err(error) => {
            let (line, column) = (error.inner().line(), error.inner().column());
            Problem::new(
                StatusCode::BAD_REQUEST,
                format!("the body is no JSON: it breaks at line {line}, column {column}"),
            )
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let mut parts = kind.split(';').map(str::trim);
    let json = parts
        .next()
        .is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    json && parts.all(|part| part.eq_ignore_ascii_case("charset=utf-8"))
}

fn refused(path: &str, said: &str) -> Problem {
    match because(path, said) {
        (Some(param), detail) => Problem::bad(param, detail),
        (None, detail) => Problem::new(StatusCode::BAD_REQUEST, detail),
    }
}

/// The one id of a path.
pub(super) struct Id(pub(super) Uuid);

impl FromRequestParts<App> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, app)
            .await
            .map_err(|_| Problem::bad("id", "expected a UUID"))?;
        uuid(&text)
            .map(Self)
            .ok_or_else(|| Problem::bad("id", "expected a UUID"))
    }
}

/// The two names of a path: a source, and a message id of its own.
pub(super) struct Key(pub(super) String, pub(super) String);

impl FromRequestParts<App> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Path((source, message_id)) = Path::<(String, String)>::from_request_parts(parts, app)
            .await
            .map_err(|refused| Problem::bad(at_fault(&refused), "expected UTF-8"))?;
        Ok(Self(source, message_id))
    }
}

/// Which of the two names is not UTF-8.
fn at_fault(refused: &PathRejection) -> &'static str {
    match refused {
        PathRejection::FailedToDeserializePathParams(refused) => match refused.kind() {
            ErrorKind::InvalidUtf8InPathParam { key } if key == "source" => "source",
            _ => "message_id",
        },
        _ => "message_id",
    }
}

/// A UUID as everybody writes it, with hyphens.
pub(super) fn uuid(text: &str) -> Option<Uuid> {
    const HYPHENATED: usize = 36;
    Uuid::try_parse(text)
        .ok()
        .filter(|_| text.len() == HYPHENATED)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Outer {
        number: u32,
        inner: Option<Vec<Inner>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Inner {
        topic: String,
    }

    #[test]
    fn a_problem_names_the_parameter_and_quotes_no_value() {
        for (body, param, detail) in [
            (r#"{"number":"secret"}"#, "number", "expected u32"),
            (
                r#"{"number":1,"numbr":2}"#,
                "numbr",
                "unknown field `numbr`, expected `number` or `inner`",
            ),
            ("{}", "number", "missing field `number`"),
            (
                r#"{"number":1,"inner":[{"topic":"a"},{}]}"#,
                "inner[1].topic",
                "missing field `topic`",
            ),
            (
                r#"{"number":1,"inner":[{"topic":7}]}"#,
                "inner[0].topic",
                "expected a string",
            ),
            (
                r#"{"number":1,"inner":[{"topc":7}]}"#,
                "inner[0].topc",
                "unknown field `topc`, expected `topic`",
            ),
        ] {
            let problem = serde_json::to_value(why_not::<Outer>(body.as_bytes())).expect("JSON");
            assert_eq!(problem["param"], param, "{body}: {problem}");
            assert_eq!(problem["detail"], detail, "{body}");
        }
    }

    #[test]
    fn what_is_no_json_is_told_by_its_place() {
        let problem = why_not::<Outer>(b"{\"number\": secret}");
        assert_eq!(
            problem.detail(),
            "the body is no JSON: it breaks at line 1, column 12"
        );
        let problem = why_not::<Outer>(b"{\"number\":1} 2");
        assert_eq!(
            problem.detail(),
            "expected one JSON value, and nothing after it"
        );
    }
}
