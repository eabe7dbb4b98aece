//! The first page: how the queues are doing, now and lately. Its middle is asked for again every two
//! seconds.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use askama::Template;
use askama::filters::HtmlSafe;
use axum::response::Response;
use futures_util::future::join_all;
use postroom::{Postroom, QueueStats};

use super::chart::{Chart, Series};
use super::form::Fields;
use super::frame::{Frame, Place, Visitor, html};
use super::shown::{Standing, grouped, span};
use crate::http::{App, EVERY, Sample};

/// Places on the axis of a chart.
const PLACES: u64 = 120;

/// Fewer places are never drawn.
const LEAST: u64 = 10;

/// What has not answered by then is shown as such; the page does not wait.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// The times that charts can be drawn over.
const WINDOWS: [(&str, u64); 3] = [("5 min", 300), ("15 min", 900), ("1 h", 3_600)];

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    live: Live,
    windows: Vec<Window>,
    /// Where the middle comes from.
    source: String,
}

struct Window {
    name: &'static str,
    address: String,
    is_chosen: bool,
}

/// The middle of the page.
#[derive(Template)]
#[template(path = "live.html")]
struct Live {
    tiles: Vec<Tile>,
    charts: Vec<Chart>,
    queues: Vec<QueueRow>,
    stores: Vec<StoreRow>,
    uptime: String,
}

impl HtmlSafe for Live {}

struct Tile {
    id: &'static str,
    name: &'static str,
    value: String,
    note: &'static str,
    kind: &'static str,
    address: &'static str,
}

struct QueueRow {
    name: &'static str,
    ready: String,
    in_flight: String,
    scheduled: String,
    retrying: String,
    dead: String,
    oldest: String,
}

struct StoreRow {
    name: String,
    standing: Standing,
    cause: String,
}

/// GET /
pub(super) async fn page(visitor: Visitor, fields: Fields) -> Response {
    let chosen = window(&fields);
    let windows = WINDOWS
        .iter()
        .map(|(name, seconds)| Window {
            name,
            address: format!("/?window={seconds}"),
            is_chosen: chosen == *seconds,
        })
        .collect();
    html(&Overview {
        frame: visitor.frame("Overview", Place::Overview),
        live: Live::now(&visitor.app, chosen).await,
        windows,
        source: format!("/live?window={}", chosen),
    })
}

/// GET /live: the middle of the page.
pub(super) async fn live(visitor: Visitor, fields: Fields) -> Response {
    html(&Live::now(&visitor.app, window(&fields)).await)
}

fn window(fields: &Fields) -> u64 {
    let wanted = fields.filled("window").unwrap_or_default();
    WINDOWS
        .into_iter()
        .find(|(_, seconds)| seconds.to_string() == wanted)
        .unwrap_or(WINDOWS[0])
        .1
}

impl Live {
    async fn now(app: &App, seconds: u64) -> Self {
        let history = History::of(app, seconds);
        let now = history.latest();
        let (outbox, inbox) = (now.outbox, now.inbox);
        let ready = outbox.ready + inbox.ready;
        let in_flight = outbox.in_flight + inbox.in_flight;
        let waiting = outbox.scheduled + inbox.scheduled + outbox.retrying + inbox.retrying;
        let dead = outbox.dead + inbox.dead;
        let tile = |id, name, value: u64, note, kind, address| Tile {
            id,
            name,
            value: grouped(value),
            note,
            kind,
            address,
        };
        let tiles = vec![
            tile(
                "tile-ready",
                "Ready",
                ready,
                "due, and free",
                "ready",
                "/messages?state=ready",
            ),
            tile(
                "tile-in-flight",
                "In flight",
                in_flight,
                "in a handler's hands",
                "busy",
                "/messages?state=in-flight",
            ),
            tile(
                "tile-waiting",
                "Waiting",
                waiting,
                "for their time, or a retry",
                "warm",
                "/messages?state=ready",
            ),
            tile(
                "tile-dead",
                "Dead",
                dead,
                "an operator has to act",
                if dead > 0 { "bad" } else { "quiet" },
                "/dead",
            ),
        ];
        Self {
            tiles,
            charts: history.charts(),
            queues: vec![
                QueueRow::new("Outbox", &outbox),
                QueueRow::new("Inbox", &inbox),
            ],
            stores: store_rows(app).await,
            uptime: span(app.started.elapsed()),
        }
    }
}

impl QueueRow {
    fn new(name: &'static str, stats: &QueueStats) -> Self {
        Self {
            name,
            ready: grouped(stats.ready),
            in_flight: grouped(stats.in_flight),
            scheduled: grouped(stats.scheduled),
            retrying: grouped(stats.retrying),
            dead: grouped(stats.dead),
            oldest: stats.oldest_ready.map_or("–".to_owned(), span),
        }
    }
}

async fn store_rows(app: &App) -> Vec<StoreRow> {
    let rows = app.stores.names().into_iter().map(|name| async {
        let (standing, cause) = match app.stores.room(Some(&name)) {
            Ok(room) => judged(&room, PATIENCE).await,
            Err(problem) => (Standing::UNWELL, problem.detail().to_owned()),
        };
        StoreRow {
            name,
            standing,
            cause,
        }
    });
    join_all(rows).await
}

/// How a store is, and why.
pub(super) async fn judged(room: &Postroom, patience: Duration) -> (Standing, String) {
    let Ok(health) = tokio::time::timeout(patience, room.health()).await else {
        let text = format!("it has not answered within {}", span(patience));
        return (Standing::UNWELL, text);
    };
    let pending = health
        .pending
        .map(|pending| format!("{} pending", grouped(pending)));
    match (health.is_healthy(), health.warning, health.cause) {
        (false, _, cause) => (Standing::UNWELL, cause.unwrap_or_default()),
        (true, Some(warning), _) => (Standing::STRAINED, warning),
        (true, None, _) => (Standing::WELL, pending.unwrap_or_default()),
    }
}

/// The samples of all stores together, one for each place on the axis.
struct History {
    places: Vec<Option<Sum>>,
    /// The time that they are for.
    covered: Duration,
}

/// All stores at one time.
#[derive(Clone, Copy, Default)]
struct Sum {
    outbox: QueueStats,
    inbox: QueueStats,
    done: u64,
    failed: u64,
    taken: Option<SystemTime>,
}

/// What was settled between two samples.
#[derive(Clone, Copy)]
struct Rate {
    /// Messages a second.
    done: f64,
    failed: f64,
}

impl History {
    fn of(app: &App, seconds: u64) -> Self {
        let stores = app.stores.names();
        let samples = stores.iter().map(|name| app.samples.of(name)).collect();
        Self::new(samples, seconds, SystemTime::now())
    }

    fn new(stores: Vec<Vec<Sample>>, seconds: u64, now: SystemTime) -> Self {
        // A place is never narrower than the time between two samples, or every other one was empty.
        let width = (seconds / PLACES).max(EVERY.as_secs() + 1);
        let at = |time: SystemTime| {
            time.duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs()
                / width
        };
        let last = at(now);
        let first = last.saturating_sub(seconds / width);
        let mut sums: BTreeMap<u64, Sum> = BTreeMap::new();
        for samples in stores {
            let mut latest: BTreeMap<u64, Sample> = BTreeMap::new();
            for sample in samples {
                latest.insert(at(sample.taken), sample);
            }
            for (place, sample) in latest {
                sums.entry(place).or_default().add(&sample);
            }
        }
        // A daemon that has just started fills its charts with what there is.
        let begun = sums.keys().next().copied().unwrap_or(last);
        let first = first.max(begun.min(last.saturating_sub(LEAST)));
        // The place that has just begun may have no sample yet; it is left out then.
        let end = match sums.contains_key(&last) {
            true => last,
            false => last.saturating_sub(1),
        };
        Self {
            places: (first..=end)
                .map(|place| sums.get(&place).copied())
                .collect(),
            covered: Duration::from_secs((last - first) * width),
        }
    }

    fn latest(&self) -> Sum {
        self.places
            .iter()
            .rev()
            .flatten()
            .next()
            .copied()
            .unwrap_or_default()
    }

    fn charts(&self) -> Vec<Chart> {
        let window = &span(self.covered);
        let now = self.latest();
        let depth =
            |of: fn(&QueueStats) -> u64| self.values(move |sum| of(&sum.outbox) + of(&sum.inbox));
        let unfinished = now.unfinished();
        let rates = self.rates();
        let throughput: Vec<_> = rates
            .iter()
            .map(|rate| rate.map(|rate| rate.done))
            .collect();
        let errors: Vec<_> = rates
            .iter()
            .map(|rate| rate.map(|rate| rate.share_failed()))
            .collect();
        let latest = |values: &[Option<f64>]| {
            values
                .iter()
                .rev()
                .flatten()
                .next()
                .copied()
                .unwrap_or_default()
        };
        let (fast, wrong) = (latest(&throughput), latest(&errors));
        let seconds = |value: f64| span(Duration::from_secs_f64(value.max(0.0)));
        let oldest = now.oldest().map_or("–".to_owned(), span);
        vec![
            Chart::new(
                "Depth",
                grouped(unfinished),
                window,
                vec![
                    Series {
                        name: "ready",
                        kind: "ready",
                        values: depth(|stats| stats.ready),
                    },
                    Series {
                        name: "in flight",
                        kind: "busy",
                        values: depth(|stats| stats.in_flight),
                    },
                    Series {
                        name: "waiting",
                        kind: "warm",
                        values: depth(|stats| stats.scheduled + stats.retrying),
                    },
                ],
                number,
            ),
            Chart::new(
                "Throughput",
                per_second(fast),
                window,
                vec![Series {
                    name: "done",
                    kind: "good",
                    values: throughput,
                }],
                per_second,
            ),
            Chart::new(
                "Oldest ready",
                oldest,
                window,
                vec![Series {
                    name: "age",
                    kind: "ready",
                    values: self.values(|sum| sum.oldest().unwrap_or_default().as_secs()),
                }],
                seconds,
            ),
            Chart::new(
                "Error rate",
                percent(wrong),
                window,
                vec![Series {
                    name: "failed attempts",
                    kind: "bad",
                    values: errors,
                }],
                percent,
            ),
        ]
    }

    fn values(&self, of: impl Fn(&Sum) -> u64) -> Vec<Option<f64>> {
        self.places
            .iter()
            .map(|sum| sum.as_ref().map(|sum| of(sum) as f64))
            .collect()
    }

    /// What was settled between each place and the one before it that has a sample.
    fn rates(&self) -> Vec<Option<Rate>> {
        let mut before: Option<Sum> = None;
        let rates = self.places.iter().map(|sum| {
            let sum = (*sum)?;
            let earlier = before.replace(sum)?;
            Rate::between(&earlier, &sum)
        });
        rates.collect()
    }
}

impl Sum {
    fn add(&mut self, sample: &Sample) {
        for (sum, stats) in [
            (&mut self.outbox, &sample.stats.outbox),
            (&mut self.inbox, &sample.stats.inbox),
        ] {
            sum.ready += stats.ready;
            sum.in_flight += stats.in_flight;
            sum.scheduled += stats.scheduled;
            sum.retrying += stats.retrying;
            sum.dead += stats.dead;
            sum.oldest_ready = sum.oldest_ready.max(stats.oldest_ready);
        }
        self.done += sample.done;
        self.failed += sample.failed;
        self.taken = self.taken.max(Some(sample.taken));
    }

    fn unfinished(&self) -> u64 {
        [&self.outbox, &self.inbox]
            .iter()
            .map(|stats| stats.ready + stats.in_flight + stats.scheduled + stats.retrying)
            .sum()
    }

    fn oldest(&self) -> Option<Duration> {
        self.outbox.oldest_ready.max(self.inbox.oldest_ready)
    }
}

impl Rate {
    fn between(earlier: &Sum, later: &Sum) -> Option<Self> {
        let time = later.taken?.duration_since(earlier.taken?).ok()?;
        let seconds = time.as_secs_f64();
        let per_second = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        (seconds > 0.0).then(|| Self {
            done: per_second(earlier.done, later.done),
            failed: per_second(earlier.failed, later.failed),
        })
    }

    /// Failed attempts of a hundred.
    fn share_failed(&self) -> f64 {
        let all = self.done + self.failed;
        if all > 0.0 {
            100.0 * self.failed / all
        } else {
            0.0
        }
    }
}

fn number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a conversion of floats saturates, and counts are never below zero"
    )]
    let whole = value.round() as u64;
    grouped(whole)
}

fn per_second(value: f64) -> String {
    format!("{}/s", number(value))
}

fn percent(value: f64) -> String {
    format!("{} %", number(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom::Stats;

    fn sample(taken: SystemTime, ready: u64, done: u64, failed: u64) -> Sample {
        let mut stats = Stats::default();
        stats.outbox.ready = ready;
        Sample {
            taken,
            stats,
            done,
            failed,
        }
    }

    #[test]
    fn stores_are_added_up_and_rates_go_by_the_time_between_samples() {
        let now = UNIX_EPOCH + Duration::from_secs(3_000_000);
        let earlier = now - Duration::from_secs(6);
        let stores = vec![
            vec![sample(earlier, 5, 0, 0), sample(now, 1, 9, 3)],
            vec![sample(earlier, 7, 0, 0), sample(now, 2, 6, 2)],
        ];
        let history = History::new(stores, 300, now);
        assert_eq!(history.latest().outbox.ready, 3);
        let depths: Vec<_> = history
            .values(|sum| sum.outbox.ready)
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(depths, [12.0, 3.0]);
        let rate = history
            .rates()
            .into_iter()
            .flatten()
            .next()
            .expect("a rate");
        assert_eq!((rate.done, rate.failed), (2.5, 5.0 / 6.0));
        assert_eq!(rate.share_failed(), 25.0);
    }

    #[test]
    fn nothing_measured_is_nothing_drawn() {
        let history = History::new(Vec::new(), 300, SystemTime::now());
        assert_eq!(history.latest().unfinished(), 0);
        assert!(history.rates().iter().all(Option::is_none));
    }
}
