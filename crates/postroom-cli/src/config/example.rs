//! `postroom config example`: every key there is. The tests see to that, and that it is accepted.

/// The example, as it is printed.
pub(super) const TEXT: &str = include_str!("example.toml");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use toml::Value;

    use super::super::Config;
    use super::super::keys::{FILE, Key, Kind};
    use super::TEXT;

    /// The example with the keys that stand in comments, because they exclude others, switched on; and
    /// with a secret that can be read by whoever runs the tests.
    fn everything() -> Value {
        let mut text = String::new();
        for line in TEXT.lines() {
            let commented = line.strip_prefix("# ").filter(|rest| {
                let name = rest.split(" = ").next().unwrap_or_default();
                rest.contains(" = ")
                    && name
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            });
            text.push_str(commented.unwrap_or(line));
            text.push('\n');
        }
        let mut value: Value = toml::from_str(&text).expect("TOML");
        without_secrets(&mut value);
        value
    }

    fn without_secrets(value: &mut Value) {
        if let Some(table) = value.as_table()
            && table.len() == 1
            && (table.contains_key("env") || table.contains_key("file"))
            && !table.contains_key("every")
        {
            *value = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into();
            return;
        }
        match value {
            Value::Table(table) => table
                .iter_mut()
                .for_each(|(_, value)| without_secrets(value)),
            Value::Array(array) => array.iter_mut().for_each(without_secrets),
            _ => {}
        }
    }

    fn read(value: Value) -> Result<Config, toml::de::Error> {
        value.try_into()
    }

    /// Sees a table, where it is, and the keys that it may have.
    type Look<'a> = dyn FnMut(&mut Value, &[Step], &'static [Key]) + 'a;

    /// Calls `look` with every table of the example, where it is, and the keys that it may have.
    fn visit(value: &mut Value, keys: &'static [Key], at: &[Step], look: &mut Look<'_>) {
        look(value, at, keys);
        for key in keys {
            let Some(inner) = value.get_mut(key.name) else {
                continue;
            };
            let mut at = at.to_vec();
            at.push(Step::Key(key.name));
            match (&key.kind, inner) {
                (Kind::Table(keys), inner) => visit(inner, keys, &at, look),
                (Kind::Tables(keys), Value::Array(array)) => {
                    for (index, inner) in array.iter_mut().enumerate() {
                        let mut at = at.clone();
                        at.push(Step::Index(index));
                        visit(inner, keys, &at, look);
                    }
                }
                _ => {}
            }
        }
    }

    #[derive(Clone)]
    enum Step {
        Key(&'static str),
        Index(usize),
    }

    #[test]
    fn the_example_has_every_key() {
        let mut shown: BTreeSet<(*const Key, &str)> = BTreeSet::new();
        let mut wanted = BTreeSet::new();
        let mut example = everything();
        visit(&mut example, FILE, &[], &mut |table, _, keys| {
            for key in keys {
                wanted.insert((keys.as_ptr(), key.name));
                if table.get(key.name).is_some() {
                    shown.insert((keys.as_ptr(), key.name));
                }
            }
        });
        let missing: Vec<_> = wanted.difference(&shown).map(|(_, name)| name).collect();
        assert!(
            missing.is_empty(),
            "{missing:?} cannot be seen in the example"
        );
    }

    /// serde names the fields that it knows when it meets one that it does not.
    #[test]
    fn a_struct_has_the_fields_that_its_keys_say() {
        let example = everything();
        read(example.clone()).expect("the example is a configuration");
        let mut places = Vec::new();
        visit(&mut example.clone(), FILE, &[], &mut |_, at, keys| {
            places.push((at.to_vec(), keys));
        });
        assert!(places.len() > 15);
        for (at, keys) in places {
            let mut altered = example.clone();
            let mut table = &mut altered;
            for step in &at {
                table = match step {
                    Step::Key(name) => &mut table[*name],
                    Step::Index(index) => &mut table[*index],
                };
            }
            let table = table.as_table_mut().expect("a table");
            table.insert("nonsense".to_owned(), true.into());
            let error = read(altered).expect_err("nonsense is refused").to_string();
            let (_, expected) = error.split_once("expected").expect("what is expected");
            let expected = expected.lines().next().unwrap_or_default();
            let fields: BTreeSet<&str> = expected.split('`').skip(1).step_by(2).collect();
            let names: BTreeSet<&str> = keys.iter().map(|key| key.name).collect();
            assert_eq!(fields, names, "{error}");
        }
    }
}
