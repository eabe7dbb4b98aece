//! Who calls, and what they may do.
//!
//! A program sends a bearer token; a person signs in with the same token and gets a session cookie. When
//! no tokens are configured, only this machine can connect, and whoever does is an admin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{App, Problem};
use crate::config::{self, Role};

/// The name of the session cookie.
pub(crate) const COOKIE: &str = "postroom_session";

/// How long a session lasts without being used.
const IDLE: Duration = Duration::from_secs(8 * 3_600);

/// Sessions that are kept at most; the oldest go first.
const SESSIONS: usize = 10_000;

/// The tokens that are known, hashed, and the sessions that are open.
pub(crate) struct Auth {
    tokens: Vec<([u8; 32], Arc<Caller>)>,
    /// Whoever calls when there are no tokens.
    local: Arc<Caller>,
    sessions: Mutex<HashMap<[u8; 32], Session>>,
}

struct Session {
    caller: Arc<Caller>,
    used: Instant,
}

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Whether payloads and headers may be shown to them.
    pub(crate) sees_payloads: bool,
}

impl Auth {
    pub(crate) fn new(config: &config::Auth) -> Self {
        let tokens = config.tokens.iter().map(|token| {
            let caller = Caller {
                name: token.name.clone(),
                role: token.role,
                sees_payloads: token.payloads,
            };
            (digest(token.secret.reveal()), Arc::new(caller))
        });
        Self {
            tokens: tokens.collect(),
            local: Arc::new(Caller {
                name: "local".to_owned(),
                role: Role::Admin,
                sees_payloads: config.local_payloads,
            }),
            sessions: Mutex::default(),
        }
    }

    /// Whether callers have to say who they are.
    pub(crate) fn is_required(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whose token this is. Every token is compared, whole, whatever the first ones say.
    pub(crate) fn token(&self, secret: &str) -> Option<Arc<Caller>> {
        let given = digest(secret);
        let mut found = None;
        for (known, caller) in &self.tokens {
            if bool::from(known.ct_eq(&given)) {
                found = Some(Arc::clone(caller));
            }
        }
        found
    }

    /// Opens a session and gives its secret, for a cookie.
    pub(crate) fn open_session(&self, caller: Arc<Caller>) -> String {
        let secret = format!(
            "{}{}",
            uuid::Uuid::new_v4().simple(),
            uuid::Uuid::new_v4().simple()
        );
        let mut sessions = self.sessions();
        let now = Instant::now();
        sessions.retain(|_, session| now.duration_since(session.used) < IDLE);
        if sessions.len() >= SESSIONS
            && let Some(oldest) = sessions
                .iter()
                .min_by_key(|(_, session)| session.used)
                .map(|(key, _)| *key)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(digest(&secret), Session { caller, used: now });
        secret
    }

    pub(crate) fn close_session(&self, headers: &HeaderMap) {
        if let Some(secret) = cookie(headers) {
            self.sessions().remove(&digest(secret));
        }
    }

    fn session(&self, secret: &str) -> Option<Arc<Caller>> {
        let mut sessions = self.sessions();
        let key = digest(secret);
        let session = sessions.get_mut(&key)?;
        if session.used.elapsed() >= IDLE {
            sessions.remove(&key);
            return None;
        }
        session.used = Instant::now();
        Some(Arc::clone(&session.caller))
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who sent a request with these headers.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<Arc<Caller>> {
        if !self.is_required() {
            return Some(Arc::clone(&self.local));
        }
        match bearer(headers) {
            Some(token) => self.token(token),
            None => cookie(headers).and_then(|secret| self.session(secret)),
        }
    }
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(name, value)| (name == COOKIE).then_some(value))
}

/// Who sent a request, as the server has found out, when that is somebody who may do this.
fn caller(request: &Parts, least: Role) -> Result<Arc<Caller>, Problem> {
    let caller = request.extensions.get::<Arc<Caller>>().ok_or_else(|| {
        Problem::new(
            StatusCode::UNAUTHORIZED,
            "sign in, or send a token: Authorization: Bearer …",
        )
    })?;
    if caller.role < least {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            format!("this needs the role {least:?}").to_lowercase(),
        ));
    }
    Ok(Arc::clone(caller))
}

macro_rules! extractor {
    ($(#[$doc:meta])* $name:ident, $role:expr) => {
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) Arc<Caller>);

        impl FromRequestParts<App> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
                caller(parts, $role).map(Self)
            }
        }
    };
}

extractor! {
    /// Whoever may look.
    Viewer, Role::Viewer
}
extractor! {
    /// Whoever may act on messages: enqueue, replay, revive, attach, cancel.
    Operator, Role::Operator
}
extractor! {
    /// Whoever may delete.
    Admin, Role::Admin
}
