//! Errors as problem+json (RFC 9457).

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use postroom::ErrorKind;
use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong with a request, and what to do about it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What kind of problem: a page that explains it, or `about:blank`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The meaning of the status.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What happened in this case.
    detail: String,
    /// The parameter at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<String>,
    /// When to come again, in seconds: goes into a header.
    #[serde(skip)]
    #[schema(ignore)]
    retry_after: Option<u32>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            param: None,
            retry_after: None,
        }
    }

    /// A parameter that is not right.
    pub(crate) fn bad(param: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail).param(param)
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no such {what}"))
    }

    pub(crate) fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<postroom::Error> for Problem {
    fn from(error: postroom::Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Transient => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::NotFound { .. } => StatusCode::NOT_FOUND,
            ErrorKind::AlreadyExists { .. } | ErrorKind::LeaseLost => StatusCode::CONFLICT,
            _ if error.param().is_some() => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let problem = Self::new(status, error.to_string());
        match error.param() {
            Some(param) => problem.param(param),
            None => problem,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (
            self.status(),
            [(header::CONTENT_TYPE, "application/problem+json")],
            body,
        )
            .into_response();
        if self.status == StatusCode::UNAUTHORIZED.as_u16() {
            let challenge = header::HeaderValue::from_static("Bearer realm=\"postroom\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.retry_after {
            let seconds = header::HeaderValue::from(seconds);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}
