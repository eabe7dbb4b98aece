//! The OpenAPI document: what the API takes and gives, for people and for programs.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use clap::Args;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, HeaderBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::read::Query;
use super::stores::Nothing;
use super::{TAG_DEAD, TAG_INBOX, TAG_JOINS, TAG_MESSAGES, TAG_STORES};
use super::{audit, dead, inbox, joins, messages, stores};
use crate::http::{Problem, Viewer};

/// Print the OpenAPI document of the HTTP API
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom openapi > openapi.json     for a generator of clients

A running daemon serves the same document at /v1/openapi.json.")]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        use std::io::Write;
        Ok(std::io::stdout().write_all(DOCUMENT.as_bytes())?)
    }
}

/// The document itself
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = TAG_STORES, operation_id = "getDocument",
    responses((status = 200, description = "This document", body = serde_json::Value))
)]
pub(super) async fn serve(_: Viewer, Query(Nothing {}): Query<Nothing>) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        DOCUMENT.as_str(),
    )
        .into_response()
}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let document = Document::openapi().to_pretty_json();
    document.unwrap_or_default() + "\n"
});

#[derive(OpenApi)]
#[openapi(
    info(
        title = "postroom",
        description = "Reliable messaging from the database you already have: outbox, inbox and joins.\n\n\
            Send a token as `Authorization: Bearer …`. Its role says what it may do: a viewer looks, an \
            operator also acts on messages, an admin also deletes. Payloads, headers and the metadata of \
            joins are shown to tokens with that right only. Without tokens the daemon answers to its own \
            machine only, and asks for none.\n\n\
            Lists come in pages: `next` is the `cursor` of the page after, and `null` on the last one. \
            Errors are problem+json (RFC 9457); `param` names the parameter at fault.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    paths(
        messages::enqueue, messages::enqueue_batch, messages::search, messages::show,
        dead::list, dead::replay, dead::purge,
        inbox::enqueue, inbox::check, inbox::list, inbox::show, inbox::revive,
        joins::start, joins::list, joins::show, joins::attach, joins::cancel,
        stores::stats, stores::topics, stores::list, stores::health, stores::alive, stores::ready,
        stores::metrics, audit::list, serve,
    ),
    components(schemas(Problem)),
    security(("token" = [])),
    modifiers(&Security, &Problems),
    tags(
        (name = TAG_MESSAGES, description = "Messages on their way out"),
        (name = TAG_DEAD, description = "Messages that failed for good"),
        (name = TAG_INBOX, description = "Messages that came in"),
        (name = TAG_JOINS, description = "Waiting for a group of messages"),
        (name = TAG_STORES, description = "How the stores are doing, and who did what"),
    ),
)]
struct Document;

/// How callers say who they are.
struct Security;

impl Modify for Security {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("token", token);
    }
}

/// The problems that an operation can answer with: described once, and referred to by each.
struct Problems;

const PROBLEMS: [(&str, &str, &str); 12] = [
    (
        "400",
        "BadRequest",
        "The request is not right; `param` names what",
    ),
    ("401", "Unauthorized", "No token, or none that is known"),
    (
        "403",
        "Forbidden",
        "The role does not suffice, or the request comes from another site",
    ),
    ("404", "NotFound", "There is no such store, message or join"),
    ("408", "TooSlow", "The request came too slowly"),
    ("409", "Conflict", "It exists already"),
    ("413", "TooLarge", "The body is too large"),
    ("415", "NotJson", "The body is not `application/json`"),
    (
        "421",
        "Misdirected",
        "Without tokens: the name in `Host` is not this machine's",
    ),
    (
        "422",
        "Unprocessable",
        "Each value is right, but not together with the others, or with what is stored",
    ),
    ("500", "Failed", "The store refused for a reason of its own"),
    ("503", "Unavailable", "The store does not answer; try again"),
];

impl Modify for Problems {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (status, name, description) in PROBLEMS {
            let response = problem(status, description).into();
            components.responses.insert(name.to_owned(), response);
        }
        for (path, item) in &mut document.paths.paths {
            let reads = item.get.as_mut().map(|operation| (operation, false));
            let writes = item.post.as_mut().map(|operation| (operation, true));
            for (operation, writes) in reads.into_iter().chain(writes) {
                let open = operation.security.is_some();
                refer_to_problems(path, operation, open, writes);
            }
        }
    }
}

fn refer_to_problems(path: &str, operation: &mut Operation, open: bool, writes: bool) {
    let names_something = path.contains('{') || operation.parameters.is_some();
    for (status, name, _) in PROBLEMS {
        let possible = match status {
            "401" => !open,
            "400" | "500" => path.starts_with("/v1"),
            "403" => !open,
            "404" => names_something,
            "409" | "422" => writes || names_something,
            "415" => operation.request_body.is_some(),
            "503" => path != "/healthz" && path != "/metrics",
            _ => true,
        };
        if possible {
            let response = RefOr::Ref(Ref::from_response_name(name));
            operation
                .responses
                .responses
                .insert(status.to_owned(), response);
        }
    }
}

fn problem(status: &str, description: &str) -> utoipa::openapi::Response {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .build();
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content);
    match status {
        "401" => {
            let header = HeaderBuilder::new().description(Some("How to say who you are"));
            response.header("WWW-Authenticate", header.build())
        }
        _ => response,
    }
    .build()
}
