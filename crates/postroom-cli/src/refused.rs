//! Why JSON or a query string was not taken: serde's words, with the field at fault and without the value
//! at fault, which may be private.

/// Which field it was, if any, and what was expected. `path` is where serde was, `said` what it said.
pub(crate) fn because(path: &str, said: &str) -> (Option<String>, String) {
    let said = said.split(" at line ").next().unwrap_or(said);
    let named = ["unknown field", "missing field", "duplicate field"]
        .iter()
        .any(|words| said.starts_with(words));
    let (field, detail) = if named {
        let field = said.split('`').nth(1).unwrap_or_default();
        let field = match path.strip_suffix(field).unwrap_or(path) {
            "" | "." => field.to_owned(),
            within => format!("{}.{field}", within.trim_end_matches('.')),
        };
        (field, said)
    } else {
        let expected = said
            .find("expected ")
            .map_or("expected another value", |at| &said[at..]);
        (path.to_owned(), expected)
    };
    let is_named = !["", "."].contains(&field.as_str());
    (is_named.then_some(field), detail.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_named_and_the_value_is_not() {
        for (path, said, field, detail) in [
            (
                "a",
                "unknown field `a`, expected `b`",
                Some("a"),
                "unknown field `a`, expected `b`",
            ),
            (
                "x.a",
                "duplicate field `a` at line 1 column 2",
                Some("x.a"),
                "duplicate field `a`",
            ),
            (".", "missing field `a`", Some("a"), "missing field `a`"),
            (
                "a",
                "the secret is bad",
                Some("a"),
                "expected another value",
            ),
            (
                "a",
                "invalid type: string \"secret\", expected a map",
                Some("a"),
                "expected a map",
            ),
            (
                ".",
                "invalid type: integer `7`, expected struct Fields",
                None,
                "expected struct Fields",
            ),
        ] {
            let expected = (field.map(str::to_owned), detail.to_owned());
            assert_eq!(because(path, said), expected);
        }
    }
}
