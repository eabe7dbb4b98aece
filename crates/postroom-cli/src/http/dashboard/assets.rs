//! Scripts, styles and the icon. They are part of the binary, and their names change with their content, so
//! that browsers may keep them for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::fault::Fault;

/// A file of ours.
pub(super) struct Asset {
    name: String,
    kind: &'static str,
    content: &'static [u8],
}

/// The files that a page needs, by the paths that it has to name.
pub(super) struct Paths {
    pub(super) style: String,
    pub(super) script: String,
    pub(super) htmx: String,
    pub(super) icon: String,
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "dashboard",
        "css",
        "text/css; charset=utf-8",
        include_bytes!("../../../assets/dashboard.css"),
    )
});
static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "dashboard",
        "js",
        "text/javascript; charset=utf-8",
        include_bytes!("../../../assets/dashboard.js"),
    )
});
static HTMX: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "htmx",
        "js",
        "text/javascript; charset=utf-8",
        include_bytes!("../../../assets/htmx.min.js"),
    )
});
static ICON: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new(
        "icon",
        "svg",
        "image/svg+xml",
        include_bytes!("../../../assets/icon.svg"),
    )
});

static PATHS: LazyLock<Paths> = LazyLock::new(|| Paths {
    style: STYLE.path(),
    script: SCRIPT.path(),
    htmx: HTMX.path(),
    icon: ICON.path(),
});

pub(super) fn paths() -> &'static Paths {
    &PATHS
}

impl Asset {
    fn new(stem: &str, suffix: &str, kind: &'static str, content: &'static [u8]) -> Self {
        let digest = Sha256::digest(content);
        let mark: String = digest
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            name: format!("{stem}.{mark}.{suffix}"),
            kind,
            content,
        }
    }

    fn path(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

/// GET /assets/{name}: for everybody, because the sign-in page needs them too.
pub(super) async fn serve(Path(name): Path<String>) -> Result<Response, Fault> {
    let assets = [&*STYLE, &*SCRIPT, &*HTMX, &*ICON];
    let asset = assets
        .into_iter()
        .find(|asset| asset.name == name)
        .ok_or_else(|| Fault::not_found("file"))?;
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Ok((StatusCode::OK, headers, asset.content).into_response())
}
