//! Links to the other pages of a list.

use std::fmt::Display;

use askama::Template;
use askama::filters::HtmlSafe;

use super::form::{Fields, with};
use super::frame::Visitor;

/// Where a list begins, and where it goes on.
#[derive(Template)]
#[template(path = "pager.html")]
pub(super) struct Pager {
    /// `None` on the first page.
    first: Option<String>,
    /// `None` on the last page.
    next: Option<String>,
}

impl HtmlSafe for Pager {}

impl Pager {
    /// For a list at this path that is filtered by the fields of these names.
    pub(super) fn new(
        visitor: &Visitor,
        fields: &Fields,
        path: &str,
        names: &[&str],
        next: Option<impl Display>,
    ) -> Self {
        let here = visitor.at(&fields.address(path, names));
        Self {
            next: next.map(|next| with(&here, "after", &next.to_string())),
            first: fields.filled("after").map(|_| here),
        }
    }
}
