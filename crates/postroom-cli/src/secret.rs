//! Connection URLs may hold passwords: here they lose them before anybody reads them.

/// A URL as it may be shown: without user, password and query string.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return if url.starts_with("sqlite:") {
            url.to_owned()
        } else {
            "this URL".to_owned()
        };
    };
    if scheme == "sqlite" {
        return url.to_owned();
    }
    let place = rest.split('?').next().unwrap_or_default();
    match place.rsplit_once('@') {
        Some((_, place)) => format!("{scheme}://{place}"),
        // An `@` beyond the query's start may belong to a password with a question mark.
        None if rest.contains('@') => format!("{scheme}://…"),
        None => format!("{scheme}://{place}"),
    }
}

/// A text in which every URL is cut off after its scheme.
pub(crate) fn without_urls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://…");
        // clap puts an argument in quotes, and the argument may hold spaces and quotes of its own.
        let line = after.split('\n').next().unwrap_or_default();
        let end = line
            .rfind('\'')
            .unwrap_or_else(|| line.find(char::is_whitespace).unwrap_or(line.len()));
        rest = &after[end..];
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_user_password_or_query() {
        assert_eq!(
            shown("postgres://u:secret@db.example:5433/shop?password=secret"),
            "postgres://db.example:5433/shop"
        );
        assert_eq!(
            shown("postgresql://localhost/shop"),
            "postgresql://localhost/shop"
        );
        assert!(!shown("postgres://u:se?cret@db/shop").contains("cret"));
        assert!(!shown("postgres://u:sec/ret@db/shop").contains("ret@"));
        assert!(!shown("host=db password=secret").contains("secret"));
        assert_eq!(shown("sqlite:app.db"), "sqlite:app.db");
    }

    #[test]
    fn a_usage_error_quotes_no_url() {
        let usage =
            "error: unexpected argument 'postgres://u:se cret'x@h/db' found\n\nUsage: postroom\n";
        assert_eq!(
            without_urls(usage),
            "error: unexpected argument 'postgres://…' found\n\nUsage: postroom\n"
        );
        assert_eq!(
            without_urls("x --url=postgresql://u:p@h/db y"),
            "x --url=postgresql://… y"
        );
        assert_eq!(
            without_urls("possible values: postgres, sqlite"),
            "possible values: postgres, sqlite"
        );
    }
}
