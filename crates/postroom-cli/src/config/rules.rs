//! What must be right between keys: names that are used once, choices that exclude each other, stores that
//! are there.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use postroom::Options;
use toml::de::{DeTable, DeValue};

use super::Secret;
use super::problems::Problems;
use super::values::{identifier, plain_or_secret, secret, store_url};
use crate::http::standard_webhooks_key;
use crate::stores::ONLY;
use crate::targets::endpoint;

/// Checks the whole file. Values that are not what they should be are somebody else's business, and left
/// out here.
pub(super) fn check(file: &DeTable<'_>, problems: &mut Problems<'_>) {
    stores(file, problems);
    tokens(file, problems);
    if let Some(discovery) = Entry::at(file, "discovery") {
        exactly_one(&discovery, &["file", "query"], problems);
    }
    retry(file, problems);
    jobs(file, problems);
    targets(file, problems);
    webhooks(file, problems);
}

/// The same for a file with nothing but stores.
pub(super) fn check_stores(file: &DeTable<'_>, problems: &mut Problems<'_>) {
    let stores = Entry::all(file, "store");
    places(&stores, &[], problems);
    unique(&stores, "name", problems);
}

/// Stores and modules are known by the same kind of name.
fn stores(file: &DeTable<'_>, problems: &mut Problems<'_>) {
    let (stores, modules) = (Entry::all(file, "store"), Entry::all(file, "module"));
    let named = names(&stores);
    for module in &modules {
        if let Some(store) = module.text("store")
            && !named.contains(&store)
        {
            module.wrong("store", no_such_store(store, &named), problems);
        }
    }
    places(&stores, &modules, problems);
    let all: Vec<Entry<'_, '_>> = stores.into_iter().chain(modules).collect();
    unique(&all, "name", problems);
}

/// What the daemon would refuse when it opens stores and modules, as far as that can be told without a
/// connection. Two of the same tables would count and show every message twice.
fn places(stores: &[Entry<'_, '_>], modules: &[Entry<'_, '_>], problems: &mut Problems<'_>) {
    let mut seen: Vec<(String, String)> = Vec::new();
    let mut place = |entry: &Entry<'_, '_>, options: Options, problems: &mut Problems<'_>| {
        match options.identity() {
            Ok(identity) => {
                if let Some((_, first)) = seen.iter().find(|(other, _)| *other == identity) {
                    let key = if entry.has("schema") { "schema" } else { "url" };
                    let says =
                        format!("{first} has the same tables; give one of them another schema");
                    entry.wrong(key, says, problems);
                }
                seen.push((identity, entry.path.clone()));
            }
            Err(error) if error.param() == Some("schema") => {
                entry.wrong("schema", error, problems);
            }
            // Of a module, it was told of its store.
            Err(error) if entry.has("url") => entry.wrong("url", error, problems),
            Err(_) => {}
        }
    };
    for store in stores {
        if let Some(options) = options(store, store.text("schema")) {
            place(store, options, problems);
        }
    }
    for module in modules {
        let of = match module.text("store") {
            None => stores.first(),
            Some(name) => stores.iter().find(|store| store.text("name") == Some(name)),
        };
        let options = match of {
            Some(of) => options(of, module.text("schema")),
            // Nobody has named a store: there is one in a file.
            None => module
                .text("schema")
                .filter(|schema| identifier(schema).is_ok())
                .map(|schema| Options::new("sqlite:a.db").schema(schema)),
        };
        if let Some(options) = options {
            place(module, options, problems);
        }
    }
}

/// How a store is opened; `None` when its URL or the schema is nothing to begin with, which was told before.
fn options(store: &Entry<'_, '_>, schema: Option<&str>) -> Option<Options> {
    let url = store.value("url").filter(|url| store_url(url).is_ok())?;
    let options = Options::new(plain_or_secret(url).ok()?.reveal());
    match schema {
        None => Some(options),
        Some(schema) => identifier(schema).is_ok().then(|| options.schema(schema)),
    }
}

/// What the stores are called; without any there is one nevertheless.
fn names<'n>(stores: &[Entry<'n, '_>]) -> Vec<&'n str> {
    if stores.is_empty() {
        return vec![ONLY];
    }
    stores
        .iter()
        .filter_map(|store| store.text("name"))
        .collect()
}

fn no_such_store(store: &str, named: &[&str]) -> String {
    match named {
        [only] => format!("there is no store `{store}`, only `{only}`; add it as [[store]]"),
        several => format!(
            "there is no store `{store}`; the stores are {}",
            several.join(", ")
        ),
    }
}

fn tokens(file: &DeTable<'_>, problems: &mut Problems<'_>) {
    let Some(auth) = Entry::at(file, "auth") else {
        return;
    };
    let mut tokens = Entry::all(auth.table, "token");
    for token in &mut tokens {
        token.path = format!("auth.{}", token.path);
    }
    unique(&tokens, "name", problems);
    let mut seen: Vec<(Secret, &str)> = Vec::new();
    for token in &tokens {
        let Some(secret) = token.value("secret").and_then(|at| secret(at).ok()) else {
            continue;
        };
        if !secret.reveal().bytes().all(|byte| byte.is_ascii_graphic()) {
            let says = "must be letters, digits and signs of ASCII, without blanks: it travels in a header";
            token.wrong("secret", says, problems);
        }
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == secret) {
            let says = format!("is the same as that of {first}; nobody could tell them apart");
            token.wrong("secret", says, problems);
        }
        seen.push((secret, &token.path));
    }
}

fn retry(file: &DeTable<'_>, problems: &mut Problems<'_>) {
    let Some(retry) = Entry::at(file, "retry") else {
        return;
    };
    let (own, others) = match retry.text("policy") {
        Some("honeydrunk") => ("honeydrunk", ["infrastructure"].as_slice()),
        None | Some("backoff") => ("backoff", ["first_delay", "longest_delay"].as_slice()),
        Some(_) => return,
    };
    for key in others {
        if retry.has(key) {
            let says = format!("means nothing to the policy {own}; remove it");
            retry.wrong(key, says, problems);
        }
    }
}

fn jobs(file: &DeTable<'_>, problems: &mut Problems<'_>) {
    let jobs = Entry::at(file, "jobs");
    let reaping = jobs.and_then(|jobs| Entry::at(jobs.table, "reaping"));
    if let Some(mut reaping) = reaping
        && reaping.has("keep")
    {
        reaping.path = "jobs.reaping".to_owned();
        reaping.wrong("keep", "reaping deletes nothing; remove it", problems);
    }
}

fn targets(file: &DeTable<'_>, problems: &mut Problems<'_>) {
    let mut taken: HashMap<(&str, &str), String> = HashMap::new();
    let targets = Entry::all(file, "target");
    for target in &targets {
        exactly_one(target, &["http", "command", "stdout"], problems);
        let queue = target.text("queue").unwrap_or("outbox");
        let mut own = HashSet::new();
        for topic in target.texts("topics") {
            if !own.insert(topic) {
                target.wrong("topics", format!("names `{topic}` twice"), problems);
            } else if let Some(first) = taken.insert((queue, topic), target.path.clone()) {
                let says = format!(
                    "`{topic}` of the {queue} goes to {first} already; a topic has one target"
                );
                target.wrong("topics", says, problems);
            }
        }
        if let Some(mut http) = Entry::at(target.table, "http") {
            http.path = format!("{}.http", target.path);
            let url = http.value("url").and_then(|at| plain_or_secret(at).ok());
            let (plain, private) = (http.is_on("allow_http"), http.is_on("allow_private"));
            if let Some(url) = url
                && let Err(says) = endpoint(url.reveal(), plain, private)
            {
                http.wrong("url", says, problems);
            }
        }
    }
}

fn webhooks(file: &DeTable<'_>, problems: &mut Problems<'_>) {
    let webhooks = Entry::all(file, "webhook");
    let mut named = names(&Entry::all(file, "store"));
    let modules = Entry::all(file, "module");
    named.extend(modules.iter().filter_map(|module| module.text("name")));
    for webhook in &webhooks {
        // Nobody knows yet which stores will be discovered.
        if let Some(store) = webhook.text("store")
            && !named.contains(&store)
            && Entry::at(file, "discovery").is_none()
        {
            webhook.wrong("store", no_such_store(store, &named), problems);
        }
        if webhook.text("scheme") == Some("standard") {
            standard_secrets(webhook, problems);
        }
        match (webhook.text("scheme"), webhook.has("header")) {
            (Some("hmac"), false) => webhook.wrong(
                "header",
                "is missing; the scheme hmac needs the name of the header with the signature",
                problems,
            ),
            (Some(scheme @ ("stripe" | "github" | "standard")), true) => webhook.wrong(
                "header",
                format!("the scheme {scheme} has a header of its own; remove this, or use hmac"),
                problems,
            ),
            _ => {}
        }
    }
    unique(&webhooks, "source", problems);
}

fn standard_secrets(webhook: &Entry<'_, '_>, problems: &mut Problems<'_>) {
    let secrets = webhook.value("secrets").and_then(DeValue::as_array);
    for (index, node) in secrets
        .into_iter()
        .flat_map(|nodes| nodes.iter().enumerate())
    {
        if let Ok(secret) = secret(node.get_ref())
            && let Err(says) = standard_webhooks_key(&secret)
        {
            let path = format!("{}.secrets[{index}]", webhook.path);
            problems.add(&path, &node.span(), says);
        }
    }
}

/// One of these keys has to be there, and only one. A switch that is off is not there.
fn exactly_one(entry: &Entry<'_, '_>, keys: &[&str], problems: &mut Problems<'_>) {
    let there: Vec<&str> = keys
        .iter()
        .copied()
        .filter(|key| entry.has(key) && entry.value(key).and_then(DeValue::as_bool) != Some(false))
        .collect();
    let says = match there.as_slice() {
        [_] => return,
        [] => format!("has none of {}; add one", keys.join(", ")),
        several => format!("has {}; keep one of them", several.join(" and ")),
    };
    problems.add(&entry.path, &entry.place, says);
}

fn unique(entries: &[Entry<'_, '_>], key: &str, problems: &mut Problems<'_>) {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for entry in entries {
        let Some(name) = entry.text(key) else {
            continue;
        };
        if let Some(first) = seen.insert(name, &entry.path) {
            let says = format!("`{name}` is the name of {first} already; choose another");
            entry.wrong(key, says, problems);
        }
    }
}

/// A table of the file, where it is, and what it is called in a message.
#[derive(Clone)]
struct Entry<'n, 'i> {
    table: &'n DeTable<'i>,
    path: String,
    place: Range<usize>,
}

impl<'n, 'i> Entry<'n, 'i> {
    fn at(table: &'n DeTable<'i>, name: &str) -> Option<Self> {
        let (key, node) = table.iter().find(|(key, _)| key.get_ref() == name)?;
        Some(Self {
            table: node.get_ref().as_table()?,
            path: name.to_owned(),
            place: key.span(),
        })
    }

    /// All `[[name]]`.
    fn all(table: &'n DeTable<'i>, name: &str) -> Vec<Self> {
        let node = table.iter().find(|(key, _)| key.get_ref() == name);
        let array = node.and_then(|(_, node)| node.get_ref().as_array());
        let elements = array.into_iter().flat_map(|array| array.iter()).enumerate();
        elements
            .filter_map(|(index, node)| {
                Some(Self {
                    table: node.get_ref().as_table()?,
                    path: format!("{name}[{index}]"),
                    place: node.span(),
                })
            })
            .collect()
    }

    fn value(&self, key: &str) -> Option<&'n DeValue<'i>> {
        let entry = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(entry.1.get_ref())
    }

    fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    fn text(&self, key: &str) -> Option<&'n str> {
        self.value(key)?.as_str()
    }

    fn texts(&self, key: &str) -> impl Iterator<Item = &'n str> + use<'n, 'i> {
        let array = self.value(key).and_then(DeValue::as_array);
        let elements = array.into_iter().flat_map(|array| array.iter());
        elements.filter_map(|element| element.get_ref().as_str())
    }

    fn is_on(&self, key: &str) -> bool {
        self.value(key).and_then(DeValue::as_bool) == Some(true)
    }

    /// A problem with one of its keys.
    fn wrong(&self, key: &str, says: impl std::fmt::Display, problems: &mut Problems<'_>) {
        let named = self.table.keys().find(|name| name.get_ref() == key);
        let place = named.map_or_else(|| self.place.clone(), toml::Spanned::span);
        problems.add(&format!("{}.{key}", self.path), &place, says);
    }
}
