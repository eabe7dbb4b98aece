//! What the library logs, caught on the test's own thread.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Catches everything that is logged on this thread until it is dropped. The future of a test runs
/// on its own thread from beginning to end, so nothing of other tests gets in.
#[derive(Debug)]
pub struct Logs {
    caught: Arc<Mutex<Vec<Line>>>,
    _guard: DefaultGuard,
}

/// One event, or one new span.
#[derive(Clone, Debug)]
pub struct Line {
    /// How serious it is.
    pub level: Level,
    /// The module that it comes from.
    pub target: String,
    /// Whether it is a new span.
    pub is_span: bool,
    /// Its text.
    pub message: String,
    /// Everything else that it carries, by name.
    pub fields: BTreeMap<String, String>,
}

impl Line {
    /// A field as text; empty when there is none.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Starts to catch, at every level.
#[must_use]
pub fn catch() -> Logs {
    // With one subscriber only, tracing asks the thread that comes first to a line whether anybody wants it,
    // and believes its no for all threads. With two it asks them.
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| Dispatch::new(NoSubscriber::new()));
    let caught = Arc::default();
    let guard = tracing::subscriber::set_default(Catcher(Arc::clone(&caught)));
    Logs {
        caught,
        _guard: guard,
    }
}

impl Logs {
    /// The library's events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Line> {
        let lines = locked(&self.caught);
        lines
            .iter()
            .filter(|line| !line.is_span && line.target.starts_with("postroom"))
            .cloned()
            .collect()
    }

    /// The library's events at a level whose message is `message`.
    #[must_use]
    pub fn at(&self, level: Level, message: &str) -> Vec<Line> {
        let mut events = self.events();
        events.retain(|line| line.level == level && line.message == message);
        events
    }

    /// Everything that anybody logged, spans too, as one text.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = locked(&self.caught);
        lines.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{line:?}");
            text
        })
    }
}

fn locked(lines: &Mutex<Vec<Line>>) -> MutexGuard<'_, Vec<Line>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Catcher(Arc<Mutex<Vec<Line>>>);

impl Catcher {
    fn catch(&self, metadata: &Metadata<'_>, mut fields: BTreeMap<String, String>) {
        locked(&self.0).push(Line {
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            is_span: metadata.is_span(),
            message: fields.remove("message").unwrap_or_default(),
            fields,
        });
    }
}

impl Subscriber for Catcher {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.catch(span.metadata(), fields.0);
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.catch(event.metadata(), fields.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
