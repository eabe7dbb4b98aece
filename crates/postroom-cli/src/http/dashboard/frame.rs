//! What is round every page: who visits, which store they look at, where they are.

use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::{Html, IntoResponse, Response};
use postroom::Postroom;

use super::assets::{self, Paths};
use super::fault::Fault;
use super::form::{Fields, with};
use crate::config::Role;
use crate::http::{App, Caller};

/// Somebody who has signed in, or needs not, and the store that they look at.
pub(super) struct Visitor {
    pub(super) app: App,
    pub(super) caller: Arc<Caller>,
    /// The store that the address names.
    pub(super) store: Option<String>,
}

impl FromRequestParts<App> for Visitor {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Fault> {
        let Some(caller) = parts.extensions.get::<Arc<Caller>>().cloned() else {
            let wanted = match parts.uri.path_and_query() {
                Some(place) if parts.method == axum::http::Method::GET => place.as_str(),
                _ => "/",
            };
            return Err(Fault::SignIn {
                wanted: wanted.to_owned(),
            });
        };
        let fields = Fields::of_query(&parts.uri);
        Ok(Self {
            app: App::clone(app),
            caller,
            store: fields.filled("store").map(str::to_owned),
        })
    }
}

impl Visitor {
    /// The store that they look at: the first one when the address names none.
    pub(super) fn room(&self) -> Result<Postroom, Fault> {
        Ok(self.app.stores.room(self.store.as_deref())?)
    }

    /// Refuses whoever may do less than this.
    pub(super) fn must_be(&self, least: Role) -> Result<(), Fault> {
        if self.caller.role < least {
            return Err(Fault::forbidden(format!(
                "This needs the role {}, and you are {}.",
                role(least),
                role(self.caller.role)
            )));
        }
        Ok(())
    }

    pub(super) fn may(&self, least: Role) -> bool {
        self.caller.role >= least
    }

    /// Refuses whoever may not see payloads.
    pub(super) fn must_see_payloads(&self) -> Result<(), Fault> {
        if self.caller.sees_payloads {
            Ok(())
        } else {
            Err(Fault::forbidden(
                "Payloads and headers are hidden from you: seeing them is a right of its own.",
            ))
        }
    }

    pub(super) fn frame(&self, title: impl Into<String>, place: Place) -> Frame {
        Frame::new(
            &self.app,
            Some(&self.caller),
            self.store.clone(),
            title,
            place,
        )
    }

    /// The path with the store that they look at.
    pub(super) fn at(&self, path: &str) -> String {
        with_store(path, self.store.as_deref())
    }
}

/// Where in the menu a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Overview,
    Topics,
    Messages,
    Dead,
    Inbox,
    Joins,
    Stores,
    Audit,
    Nowhere,
}

impl Place {
    fn path(self) -> &'static str {
        match self {
            Self::Overview | Self::Nowhere => "/",
            Self::Topics => "/topics",
            Self::Messages => "/messages",
            Self::Dead => "/dead",
            Self::Inbox => "/inbox",
            Self::Joins => "/joins",
            Self::Stores => "/stores",
            Self::Audit => "/audit",
        }
    }
}

/// What the template `frame.html` shows.
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) assets: &'static Paths,
    pub(super) visitor: Option<Badge>,
    pub(super) stores: Vec<String>,
    pub(super) store: Option<String>,
    /// What has just been done.
    pub(super) notice: Option<String>,
    place: Place,
}

/// Who has signed in.
pub(super) struct Badge {
    pub(super) name: String,
    pub(super) role: &'static str,
    pub(super) can_sign_out: bool,
}

/// An entry of the menu.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) address: String,
    pub(super) is_here: bool,
}

impl Frame {
    pub(super) fn new(
        app: &App,
        caller: Option<&Caller>,
        store: Option<String>,
        title: impl Into<String>,
        place: Place,
    ) -> Self {
        let can_sign_out = app.auth.is_required();
        // Strangers are not told what stores there are.
        let stores = match &caller {
            Some(_) => app.stores.names(),
            None => Vec::new(),
        };
        Self {
            title: title.into(),
            assets: assets::paths(),
            visitor: caller.map(|caller| Badge {
                name: caller.name.clone(),
                role: role(caller.role),
                can_sign_out,
            }),
            stores,
            store,
            notice: None,
            place,
        }
    }

    pub(super) fn notice(mut self, notice: Option<String>) -> Self {
        self.notice = notice;
        self
    }

    pub(super) fn menu(&self) -> Vec<Entry> {
        let entry = |(name, place): (_, Place)| Entry {
            name,
            address: self.at(place.path()),
            is_here: place == self.place,
        };
        [
            ("Overview", Place::Overview),
            ("Topics", Place::Topics),
            ("Messages", Place::Messages),
            ("Dead letters", Place::Dead),
            ("Inbox", Place::Inbox),
            ("Joins", Place::Joins),
            ("Stores", Place::Stores),
            ("Audit", Place::Audit),
        ]
        .map(entry)
        .into()
    }

    /// The path with the store that the visitor looks at.
    pub(super) fn at(&self, path: &str) -> String {
        with_store(path, self.store.as_deref())
    }

    /// Whether this store is the one that is looked at.
    pub(super) fn is_chosen(&self, store: &str) -> bool {
        match &self.store {
            Some(chosen) => chosen == store,
            None => self.stores.first().is_some_and(|first| first == store),
        }
    }

    /// Where to look at another store: on the list that this page belongs to.
    pub(super) fn home(&self) -> &'static str {
        self.place.path()
    }

    /// Whether pages are about one store of several.
    pub(super) fn has_choice(&self) -> bool {
        self.stores.len() > 1
            && !matches!(self.place, Place::Overview | Place::Stores | Place::Nowhere)
    }
}

fn with_store(path: &str, store: Option<&str>) -> String {
    match store {
        None => path.to_owned(),
        Some(store) => with(path, "store", store),
    }
}

pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
        Role::Admin => "admin",
    }
}

/// A template as a response.
pub(super) fn html(template: &impl Template) -> Response {
    match template.render() {
        Ok(page) => Html(page).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
