//! `postroom config`: look at a configuration before the daemon does.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use postroom::jobs::{Job as LibraryJob, Jobs};
use serde_json::{Value, json};

use super::load::FILE;
use super::problems::{Problem, Refused};
use super::{
    Config, Job, KEEP_INBOX, KEEP_JOINS, KEEP_OUTBOX, Policy, Queue, Role, Scheme, Target, example,
    load,
};
use crate::stores::ONLY;
use crate::{age, http, out, secret, table};

/// Check a configuration, or print an example of one
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom config example > postroom.toml     every key, with its default or an example
  postroom config check                       postroom.toml in this folder
  postroom config check live.toml --json      for programs; exit code 1 when something is wrong")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say what the daemon would do, or everything that is wrong. Exit code 1 when something is
    #[command(after_help = "\
Examples:
  postroom config check
  postroom config check /etc/postroom/postroom.toml
  postroom config check --json | jq .targets

No database is asked, nothing is connected to, and no secret is printed. The variables and files that hold \
secrets must be there, as they must for the daemon.")]
    Check {
        /// The configuration [default: postroom.toml]
        #[arg(value_name = "FILE", env = "POSTROOM_CONFIG")]
        file: Option<PathBuf>,

        /// The same, as the other commands have it
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,

        /// JSON instead of tables
        #[arg(long)]
        json: bool,
    },

    /// Print a complete configuration, with a word about every key
    #[command(after_help = "\
Examples:
  postroom config example
  postroom config example > postroom.toml")]
    Example,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Check { file, config, json } => check(file.or(config).as_deref(), json),
            Command::Example => Ok(std::io::stdout()
                .lock()
                .write_all(example::TEXT.as_bytes())?),
        }
    }
}

fn check(file: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let name = file.unwrap_or(Path::new(FILE)).display().to_string();
    let checked = load(file).and_then(|config| {
        http::check_webhooks(&config.webhooks)?;
        reachable(config, &name)
    });
    match checked {
        Ok(config) if json => {
            let mut plan = plan(&config);
            plan["valid"] = true.into();
            print(&plan)
        }
        Ok(config) => describe(&config, &name),
        Err(error) => {
            if let Some(refused) = error.downcast_ref::<Refused>()
                && json
            {
                print(&json!({ "valid": false, "problems": refused.problems }))?;
            }
            Err(error)
        }
    }
}

/// The daemon refuses to be reached by others when it cannot tell who they are. `--bind` may mend that, so
/// it is no fault of the file, but of what it would do.
fn reachable(config: Config, file: &str) -> anyhow::Result<Config> {
    let bind = config.server.bind;
    if bind.ip().is_loopback() || !config.auth.tokens.is_empty() {
        return Ok(config);
    }
    let problem = Problem {
        key: "server.bind".to_owned(),
        line: 0,
        problem: format!(
            "`server.bind`: {bind} can be reached from other machines, and there are no tokens; add [[auth.token]], or bind 127.0.0.1"
        ),
    };
    Err(Refused {
        file: file.to_owned(),
        problems: vec![problem],
    }
    .into())
}

fn print(value: &Value) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{value:#}")?;
    Ok(())
}

/// What the daemon would do, for programs.
fn plan(config: &Config) -> Value {
    json!({
        "bind": config.server.bind.to_string(),
        "dispatches": dispatches(config),
        "stores": stores(config).iter().map(|[name, place, schema, deploy]| json!({
            "name": name, "place": place, "schema": schema, "deploy": deploy == "yes",
        })).collect::<Vec<_>>(),
        "discovery": discovery(config).map(|[place, every]| json!({ "place": place, "every": every })),
        "targets": targets(config).iter().map(|[queue, topic, target]| json!({
            "queue": queue, "topic": topic, "target": target,
        })).collect::<Vec<_>>(),
        "webhooks": webhooks(config).iter().map(|[path, scheme, topic, store]| json!({
            "path": path, "scheme": scheme, "topic": topic, "store": store,
        })).collect::<Vec<_>>(),
        "tokens": config.auth.tokens.iter().map(|token| json!({
            "name": token.name, "role": role(token.role), "payloads": token.payloads,
        })).collect::<Vec<_>>(),
        "retry": retry(config),
        "jobs": jobs(config).iter().map(|[job, enabled, cron, keep]| json!({
            "job": job, "enabled": enabled == "yes", "cron": cron, "keep": keep,
        })).collect::<Vec<_>>(),
    })
}

/// The same, for people.
fn describe(config: &Config, file: &str) -> anyhow::Result<()> {
    if Path::new(file).exists() {
        out::line(format_args!("{file} is right. The daemon would"))?;
    } else {
        out::line(format_args!(
            "There is no {file}, and none is needed. The daemon would"
        ))?;
    }
    out::line(format_args!("- listen on {}", config.server.bind))?;
    out::line(format_args!("- retry: {}", retry(config)))?;
    if config.targets.is_empty() && config.stores.is_empty() && config.dispatch.enabled {
        out::line(format_args!(
            "- print the messages of the outbox, unless --url names a store of others"
        ))?;
    } else if !dispatches(config) {
        out::line(format_args!(
            "- deliver nothing: there are no targets, or [dispatch] is off"
        ))?;
    }
    out::line(format_args!("\nStores"))?;
    table::print(["NAME", "PLACE", "SCHEMA", "DEPLOY"], &stores(config))?;
    if let Some([place, every]) = discovery(config) {
        out::line(format_args!("and what is found in {place}, every {every}"))?;
    }
    section("Targets", ["QUEUE", "TOPIC", "TARGET"], &targets(config))?;
    section(
        "Webhooks",
        ["PATH", "SCHEME", "TOPIC", "STORE"],
        &webhooks(config),
    )?;
    let tokens: Vec<[String; 3]> = config
        .auth
        .tokens
        .iter()
        .map(|token| {
            let name = token.name.clone();
            [name, role(token.role).to_owned(), yes_or_no(token.payloads)]
        })
        .collect();
    section("Tokens", ["NAME", "ROLE", "PAYLOADS"], &tokens)?;
    section("Jobs", ["JOB", "ENABLED", "CRON", "KEEP"], &jobs(config))
}

/// A table, or the word that there is nothing.
fn section<const N: usize>(
    title: &str,
    heading: [&str; N],
    rows: &[[String; N]],
) -> anyhow::Result<()> {
    out::line(format_args!("\n{title}"))?;
    if rows.is_empty() {
        out::line(format_args!("none"))?;
        return Ok(());
    }
    Ok(table::print(heading, rows)?)
}

fn dispatches(config: &Config) -> bool {
    config.dispatch.enabled && !config.targets.is_empty()
}

fn stores(config: &Config) -> Vec<[String; 4]> {
    if config.stores.is_empty() {
        let place = "--url, or sqlite:postroom.db".to_owned();
        return vec![[ONLY.to_owned(), place, String::new(), String::new()]];
    }
    let stores = config.stores.iter().map(|store| {
        [
            store.name.clone(),
            store.shown(),
            store.schema.clone().unwrap_or_default(),
            yes_or_no(store.deploys()),
        ]
    });
    let modules = config.modules.iter().filter_map(|module| {
        let named = |name: &String| config.stores.iter().find(|store| store.name == *name);
        let store = module.store.as_ref().map_or(config.stores.first(), named)?;
        Some([
            module.name.clone(),
            store.shown(),
            module.schema.clone(),
            yes_or_no(store.deploys()),
        ])
    });
    stores.chain(modules).collect()
}

fn discovery(config: &Config) -> Option<[String; 2]> {
    let discovery = config.discovery.as_ref()?;
    let place = match &discovery.file {
        Some(file) => file.display().to_string(),
        None => "a query on the first store".to_owned(),
    };
    Some([place, age::written(discovery.every)])
}

fn targets(config: &Config) -> Vec<[String; 3]> {
    let rows = config.targets.iter().flat_map(|target| {
        let queue = match target.queue {
            Queue::Outbox => "outbox",
            Queue::Inbox => "inbox",
        };
        let topics = target.topics.iter();
        topics.map(move |topic| [queue.to_owned(), topic.clone(), destination(target)])
    });
    rows.collect()
}

/// Where a target goes, without what may be a secret: the path of an address, arguments.
fn destination(target: &Target) -> String {
    match (&target.http, &target.command) {
        (Some(endpoint), _) => {
            let signed = match endpoint.secrets.len() {
                0 => ", not signed".to_owned(),
                1 => String::new(),
                keys => format!(", signed with {keys} secrets"),
            };
            let place = secret::shown(endpoint.url.reveal());
            let origin = place.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
            format!("{origin}/…{signed}")
        }
        (None, Some(command)) => {
            let program = command.argv.first().map_or("", String::as_str);
            format!("the command {program}")
        }
        (None, None) => "standard output".to_owned(),
    }
}

fn webhooks(config: &Config) -> Vec<[String; 4]> {
    let rows = config.webhooks.iter().map(|webhook| {
        let scheme = match webhook.scheme {
            Scheme::Stripe => "stripe",
            Scheme::Github => "github",
            Scheme::Standard => "standard",
            Scheme::Hmac => "hmac",
        };
        [
            format!("/hooks/{}", webhook.source),
            scheme.to_owned(),
            webhook.topic.as_ref().unwrap_or(&webhook.source).clone(),
            webhook.store.clone().unwrap_or("the first".to_owned()),
        ]
    });
    rows.collect()
}

fn retry(config: &Config) -> String {
    let retry = &config.retry;
    let or = |duration: Option<Duration>, default: &str| {
        duration.map_or_else(|| default.to_owned(), age::written)
    };
    match retry.policy {
        Policy::Backoff => format!(
            "{} attempts, {} while infrastructure is away",
            retry.attempts.unwrap_or(10),
            or(retry.infrastructure, "24h")
        ),
        Policy::HoneyDrunk => format!(
            "{} attempts, after {} at first and {} at most",
            retry.attempts.unwrap_or(6),
            or(retry.first_delay, "1s"),
            or(retry.longest_delay, "5m")
        ),
    }
}

fn jobs(config: &Config) -> Vec<[String; 4]> {
    let jobs = &config.jobs;
    let all: [(LibraryJob, &Job, Option<Duration>); 4] = [
        (
            LibraryJob::OutboxCleanup,
            &jobs.outbox_cleanup,
            Some(KEEP_OUTBOX),
        ),
        (
            LibraryJob::InboxCleanup,
            &jobs.inbox_cleanup,
            Some(KEEP_INBOX),
        ),
        (
            LibraryJob::JoinCleanup,
            &jobs.join_cleanup,
            Some(KEEP_JOINS),
        ),
        (LibraryJob::Reaping, &jobs.reaping, None),
    ];
    let rows = all.map(|(job, wanted, keep)| {
        let usual = Jobs::new().schedule(job);
        [
            job.name().to_owned(),
            yes_or_no(wanted.enabled.unwrap_or(true)),
            wanted.cron.clone().unwrap_or(usual.expression().to_owned()),
            keep.map_or_else(String::new, |keep| {
                age::written(wanted.keep.unwrap_or(keep))
            }),
        ]
    });
    rows.to_vec()
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
        Role::Admin => "admin",
    }
}

fn yes_or_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}
