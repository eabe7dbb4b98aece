//! `postroom inbox`: messages that came in. Look at them, revive or purge those that failed for good.

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand, ValueEnum};
use postroom::{
    DeadFilter, ErrorKind, Inbox, InboxKeys, InboxMessage, InboxMessageId, InboxState, List,
    Postroom,
};
use serde_json::{Value, json};

use crate::list::Filter;
use crate::position::Position;
use crate::store::StoreArguments;
use crate::{age, audit, dead, out, outbox, progress, show, table};

/// Look at the inbox, revive or purge its dead messages
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom inbox list --state dead
  postroom inbox show stripe evt_1
  postroom inbox revive --source stripe evt_1 evt_2
  postroom inbox purge --older-than 90d --yes

A message is named by the id that its sender gave it. Without --source, every sender's message with \
that id is meant.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

#[derive(Subcommand)]
enum Command {
    /// List messages of the inbox, newest first
    #[command(after_help = "\
Examples:
  postroom inbox list                                    the last 50 messages
  postroom inbox list --state processing --older-than 10m
  postroom inbox list --state dead --source stripe --json

To see more than --limit, give what the last line says, or as JSON `next`, as --after. Messages that were \
only seen, never enqueued, come after all others. Payloads may hold private data: they show only with \
--show-payload, and only as JSON.")]
    List {
        /// Only messages in this state
        #[arg(long, value_enum, default_value_t = Wanted::All)]
        state: Wanted,

        /// Only messages of this sender
        #[arg(long)]
        source: Option<String>,

        #[command(flatten)]
        filter: Filter,

        /// Only what comes after this: what the page before ended with
        #[arg(long, value_name = "PLACE")]
        after: Option<Position>,
    },

    /// Show one message of the inbox, and what will happen to it next
    #[command(after_help = "\
Examples:
  postroom inbox show stripe evt_1
  postroom inbox show stripe evt_1 --show-payload --json

The exit code is 1 when no such message has arrived, or it was forgotten by `cleanup`.")]
    Show {
        /// Who sent it
        source: String,

        /// The id that the sender gave it
        message_id: String,

        /// Include payload and headers
        #[arg(long)]
        show_payload: bool,
    },

    /// Make dead messages ready again, with a fresh budget of attempts
    #[command(after_help = "\
Examples:
  postroom inbox revive evt_1                       whoever sent it
  postroom inbox revive --source stripe evt_1 evt_2
  postroom inbox revive --source stripe --older-than 1h --dry-run
  postroom inbox revive --all

Exit code 1 when none of the ids that were named is a dead message. What was done is in the audit trail.")]
    Revive {
        #[command(flatten)]
        which: Which,

        /// Only say how many
        #[arg(long)]
        dry_run: bool,
    },

    /// Delete dead messages for good, and forget that they ever arrived
    #[command(after_help = "\
Examples:
  postroom inbox purge --source stripe evt_1
  postroom inbox purge --older-than 90d --dry-run
  postroom inbox purge --all --yes

After this, the same message counts as new when it arrives again. It asks before it deletes; where nobody \
can answer, --yes is needed. Exit code 1 when none of the ids that were named is a dead message. What was \
done is in the audit trail.")]
    Purge {
        #[command(flatten)]
        which: Which,

        /// Only say how many
        #[arg(long)]
        dry_run: bool,

        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Wanted {
    Seen,
    Processing,
    Done,
    Dead,
    All,
}

/// Dead messages, by id or by what they have in common.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Which {
    /// The messages, by the ids that their sender gave them
    #[arg(value_name = "MESSAGE_ID", conflicts_with_all = ["older_than", "topic", "all"])]
    ids: Vec<String>,

    /// Those of this sender
    #[arg(long)]
    source: Option<String>,

    /// Those that have been dead for longer than this: 90s, 15m, 36h, 7d
    #[arg(long, value_parser = age::parse, value_name = "AGE")]
    older_than: Option<Duration>,

    /// Those of this topic
    #[arg(long)]
    topic: Option<String>,

    /// All of them
    #[arg(long, conflicts_with_all = ["older_than", "topic", "source"])]
    all: bool,
}

impl Which {
    fn filter(&self) -> DeadFilter {
        let mut filter = DeadFilter::all();
        if let Some(source) = &self.source {
            filter = filter.source(source);
        }
        if let Some(age) = self.older_than {
            filter = filter.older_than(age);
        }
        if let Some(topic) = &self.topic {
            filter = filter.topic(topic);
        }
        filter
    }

    /// How many dead messages are meant.
    async fn count(&self, inbox: &Inbox) -> anyhow::Result<u64> {
        if self.ids.is_empty() {
            return Ok(inbox.count_dead(&self.filter()).await?);
        }
        let mut count = 0;
        for id in &self.ids {
            let found = match &self.source {
                Some(source) => inbox.get(&InboxMessageId::new(source, id)).await?,
                None => match inbox.get_bare(id).await {
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => None,
                    found => Some(found?),
                },
            };
            count += u64::from(found.is_some_and(|message| message.state == InboxState::Dead));
        }
        Ok(count)
    }

    /// The messages that were named, as the audit trail calls them.
    fn named(&self) -> Vec<String> {
        let named = self.ids.iter().map(|id| match &self.source {
            Some(source) => InboxMessageId::new(source, id).to_string(),
            None => id.clone(),
        });
        named.collect()
    }

    /// What the audit trail calls them.
    fn subject(&self) -> String {
        let source = self.source.iter().map(|source| format!("source={source}"));
        let age = self.older_than.iter();
        let age = age.map(|age| format!("older_than={}s", age.as_secs()));
        let topic = self.topic.iter().map(|topic| format!("topic={topic}"));
        let parts: Vec<String> = source.chain(topic).chain(age).collect();
        audit::subject(&self.named(), &parts)
    }

    /// Ids that name nothing dead are a mistake worth an exit code.
    fn expect_some(&self, count: u64) -> anyhow::Result<()> {
        ensure!(
            self.ids.is_empty() || count > 0,
            "none of these is a dead message; `postroom inbox list --state dead` lists those that are"
        );
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Act {
    Revive,
    Purge,
}

impl Act {
    fn done(self) -> &'static str {
        match self {
            Self::Revive => "revived",
            Self::Purge => "purged",
        }
    }
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let room = self.store.open().await?;
        let json = self.json;
        match self.command {
            Command::List {
                state,
                source,
                filter,
                after,
            } => list(&room.inbox(), state, source, &filter, after, json).await,
            Command::Show {
                source,
                message_id,
                show_payload,
            } => {
                let id = InboxMessageId::new(source, message_id);
                show(&room, &id, show_payload, json).await
            }
            Command::Revive { which, dry_run } => {
                act(&room, Act::Revive, &which, dry_run, json).await
            }
            Command::Purge {
                which,
                dry_run,
                yes,
            } => {
                if !dry_run && !yes {
                    dead::confirm(which.count(&room.inbox()).await?)?;
                }
                act(&room, Act::Purge, &which, dry_run, json).await
            }
        }
    }
}

async fn list(
    inbox: &Inbox,
    wanted: Wanted,
    source: Option<String>,
    filter: &Filter,
    after: Option<Position>,
    json: bool,
) -> anyhow::Result<()> {
    let list = match wanted {
        Wanted::All => List::any(),
        Wanted::Seen => List::new(InboxState::Seen),
        Wanted::Processing => List::new(InboxState::Processing),
        Wanted::Done => List::new(InboxState::Done),
        Wanted::Dead => List::new(InboxState::Dead),
    };
    let mut list = filter.apply(list);
    if let Some(source) = source {
        list = list.source(source);
    }
    if let Some(after) = after {
        list = after.list(list);
    }
    let messages = inbox.list(&list).await?;
    let last = messages.last().map(Position::of);
    if json {
        let messages = messages
            .iter()
            .map(|message| as_json(message, filter.show_payload));
        out::json(&filter.page(messages.collect(), last))?;
    } else if messages.is_empty() {
        out::line("no such messages")?;
    } else {
        print(&messages)?;
        filter.tell_more(messages.len(), last)?;
    }
    Ok(())
}

async fn show(
    room: &Postroom,
    id: &InboxMessageId,
    show_payload: bool,
    json: bool,
) -> anyhow::Result<()> {
    let message = room.inbox().get(id).await?.with_context(|| {
        format!("the inbox knows no message {id}; `postroom inbox list` shows what is there")
    })?;
    let next = next(&message);
    let history = audit::of(room, &id.to_string()).await?;
    if json {
        let mut value = as_json(&message, show_payload);
        value["next"] = json!(next);
        value["audit"] = history.iter().map(audit::as_json).collect();
        out::json(&value)?;
        return Ok(());
    }
    let mut facts = vec![
        ("source", Some(message.id.source.clone())),
        ("message id", Some(message.id.message_id.clone())),
        ("work item", message.work_item_id.map(|id| id.to_string())),
        ("topic", message.topic.clone()),
        ("state", Some(state(message.state).to_owned())),
        ("correlation", message.correlation_id.clone()),
        ("hash", message.hash.as_deref().map(hex)),
        ("first seen", Some(show::moment(message.first_seen))),
        ("last seen", Some(show::moment(message.last_seen))),
        ("due", message.due_time.map(show::moment)),
    ];
    facts.extend(show::progress_facts(&message.progress));
    facts.push(("next", Some(next)));
    table::facts(&facts)?;
    audit::print(&history)?;
    if show_payload {
        let headers = message.headers.iter();
        show::print_content(
            message.payload.as_deref(),
            headers.map(|(name, value)| format!("{name}: {value}")),
        )?;
    }
    Ok(())
}

/// What will happen to the message.
fn next(message: &InboxMessage) -> String {
    let progress = &message.progress;
    match (message.state, &message.topic) {
        (InboxState::Done, _) => {
            "nothing: it is done, and further arrivals are duplicates".to_owned()
        }
        (InboxState::Dead, _) => format!(
            "nothing: it is dead; revive with: postroom inbox revive --source {} {}",
            message.id.source, message.id.message_id
        ),
        (InboxState::Seen, _) | (_, None) => {
            "nothing by itself: it was seen, and not enqueued".to_owned()
        }
        (InboxState::Processing, Some(topic)) => {
            if progress
                .locked_until
                .is_some_and(|until| age::until(until).is_some())
            {
                show::in_flight(progress)
            } else {
                show::ready(progress, topic)
            }
        }
    }
}

async fn act(
    room: &Postroom,
    act: Act,
    which: &Which,
    dry_run: bool,
    json: bool,
) -> anyhow::Result<()> {
    let inbox = room.inbox();
    if dry_run {
        let count = which.count(&inbox).await?;
        dead::tell(act.done(), count, true, json)?;
        return which.expect_some(count);
    }
    let count = match &which.source {
        _ if which.ids.is_empty() => act_on_all(&inbox, act, which).await?,
        Some(source) => {
            let ids = which.ids.iter();
            let ids: Vec<_> = ids.map(|id| InboxMessageId::new(source, id)).collect();
            settle(&inbox, act, InboxKeys::Typed(&ids)).await?
        }
        None => {
            let ids: Vec<&str> = which.ids.iter().map(String::as_str).collect();
            settle(&inbox, act, InboxKeys::Bare(&ids)).await?
        }
    };
    if count > 0 {
        let action = match act {
            Act::Revive => "inbox.revive",
            Act::Purge => "inbox.purge",
        };
        let detail = audit::detail(&which.named());
        audit::record(room, action, &which.subject(), count, detail).await?;
    }
    dead::tell(act.done(), count, false, json)?;
    which.expect_some(count)
}

/// Works on all that match, under a bar that follows what is left.
async fn act_on_all(inbox: &Inbox, act: Act, which: &Which) -> anyhow::Result<u64> {
    let filter = which.filter();
    let total = inbox.count_dead(&filter).await?;
    let left = || inbox.count_dead(&filter);
    let work = async {
        match act {
            Act::Revive => inbox.revive_matching(&filter).await,
            Act::Purge => inbox.purge_matching(&filter).await,
        }
    };
    Ok(progress::followed(act.done(), total, work, left).await?)
}

async fn settle(inbox: &Inbox, act: Act, keys: InboxKeys<'_>) -> anyhow::Result<u64> {
    Ok(match act {
        Act::Revive => inbox.revive(keys).await? as u64,
        Act::Purge => inbox.purge(keys).await?,
    })
}

fn print(messages: &[InboxMessage]) -> std::io::Result<()> {
    let rows: Vec<_> = messages
        .iter()
        .map(|message| {
            [
                message.id.source.clone(),
                message.id.message_id.clone(),
                message.topic.clone().unwrap_or_default(),
                state(message.state).to_owned(),
                age::since(message.first_seen),
                message.progress.attempt_count.to_string(),
                message.progress.last_error.clone().unwrap_or_default(),
            ]
        })
        .collect();
    table::print(
        [
            "source",
            "message id",
            "topic",
            "state",
            "first seen",
            "retries",
            "error",
        ],
        &rows,
    )
}

/// A message for programs. Payload and headers are in it only when somebody asked for them.
fn as_json(message: &InboxMessage, show_payload: bool) -> Value {
    let mut value = json!({
        "source": message.id.source,
        "message_id": message.id.message_id,
        "work_item_id": message.work_item_id.map(|id| id.to_string()),
        "topic": message.topic,
        "state": state(message.state),
        "correlation_id": message.correlation_id,
        "hash": message.hash.as_deref().map(hex),
        "first_seen": age::stamp(message.first_seen),
        "last_seen": age::stamp(message.last_seen),
        "due_at": message.due_time.map(age::stamp),
    });
    outbox::add_progress(&mut value, &message.progress);
    if show_payload {
        value["payload"] = json!(message.payload);
        value["headers"] = json!(message.headers);
    }
    value
}

fn state(state: InboxState) -> &'static str {
    match state {
        InboxState::Seen => "seen",
        InboxState::Processing => "processing",
        InboxState::Done => "done",
        InboxState::Dead => "dead",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
