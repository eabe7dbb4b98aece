//! What a form or an address says: names with values, each as often as it was given.

use axum::extract::{FromRequest, Query, Request};
use axum::http::Uri;

use super::fault::Fault;
use super::shown::encoded;

/// Names with values.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// What the address says. One that makes no sense says nothing.
    pub(super) fn of_query(uri: &Uri) -> Self {
        let fields = Query::<Vec<(String, String)>>::try_from_uri(uri);
        Self(fields.map(|Query(fields)| fields).unwrap_or_default())
    }

    /// The first value of this name that is not empty.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        self.all(name)
            .map(str::trim)
            .find(|value| !value.is_empty())
    }

    /// The first value of this name, spaces and all.
    pub(super) fn exact(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Whether any of these fields is filled.
    pub(super) fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.filled(name).is_some())
    }

    /// The path with those of these fields that are filled.
    pub(super) fn address(&self, path: &str, names: &[&str]) -> String {
        let filled = names
            .iter()
            .filter_map(|name| Some((name, self.filled(name)?)));
        filled.fold(path.to_owned(), |path, (name, value)| {
            with(&path, name, value)
        })
    }

    /// Every value of this name.
    pub(super) fn all<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        let named = self.0.iter().filter(move |(given, _)| given == name);
        named.map(|(_, value)| value.as_str())
    }
}

/// The address with one more field.
pub(super) fn with(address: &str, name: &str, value: &str) -> String {
    let mark = if address.contains('?') { '&' } else { '?' };
    format!("{address}{mark}{name}={}", encoded(value))
}

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Fields {
    type Rejection = Fault;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        _: &S,
    ) -> Result<Self, Fault> {
        Ok(Self::of_query(&parts.uri))
    }
}

/// The fields of a form that was sent.
pub(super) struct Sent(pub(super) Fields);

impl<S: Send + Sync> FromRequest<S> for Sent {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fault> {
        let form = axum::Form::<Vec<(String, String)>>::from_request(request, state).await;
        match form {
            Ok(axum::Form(fields)) => Ok(Self(Fields(fields))),
            Err(_) => Err(Fault::bad("This form was not understood.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_come_several_times_and_empty_ones_count_as_none() {
        let uri = "/dead?key=a&key=b%26c&topic=+&topic=x"
            .parse()
            .expect("a URI");
        let fields = Fields::of_query(&uri);
        assert_eq!(fields.all("key").collect::<Vec<_>>(), ["a", "b&c"]);
        assert_eq!(fields.filled("topic"), Some("x"));
        assert_eq!(fields.filled("state"), None);
    }
}
