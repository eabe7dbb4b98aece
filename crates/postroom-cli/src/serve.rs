//! `postroom serve`: the daemon. It dispatches, keeps house, takes webhooks, answers programs and people.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use clap::Args;
use metrics_exporter_prometheus::PrometheusBuilder;
use postroom::jobs::{Cleanup, Job, Jobs, RunningJobs, Schedule};
use postroom::{Dispatcher, Report, Running, stop_signal};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config, Target};
use crate::http::{self, App, Auth, Daemon, Sample, Samples};
use crate::store::DEFAULT_URL;
use crate::stores::Stores;
use crate::{out, targets};

/// Run the daemon: dispatch, webhooks, HTTP API and dashboard
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom serve                              an SQLite file here, a dashboard at http://127.0.0.1:8025
  postroom serve --config postroom.toml       stores, targets, webhooks, tokens: see `postroom config example`
  postroom serve --url postgres://app@localhost/shop
  postroom serve --show-payloads              let the dashboard show what messages carry

Without tokens in the configuration only this machine can connect. SIGTERM or Ctrl-C stops it: it takes no \
new work, finishes what runs, and hands the rest back.")]
pub(crate) struct Arguments {
    /// The configuration file [default: postroom.toml, if there is one]
    #[arg(long, value_name = "FILE", env = "POSTROOM_CONFIG")]
    config: Option<PathBuf>,

    /// The database, when the configuration names none [default: sqlite:postroom.db] [env: POSTROOM_URL]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// The address to listen on, instead of the configured one
    #[arg(long, value_name = "ADDRESS:PORT")]
    bind: Option<SocketAddr>,

    /// Show payloads to whoever connects from this machine, when no tokens are configured
    #[arg(long)]
    show_payloads: bool,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut config = config::load(self.config.as_deref())?;
        if let Some(bind) = self.bind {
            config.server.bind = bind;
        }
        config.auth.local_payloads |= self.show_payloads;
        if self.url.is_some() && !config.stores.is_empty() {
            bail!("the configuration names stores: leave --url away, or take [[store]] out of it");
        }
        let url = self.url.or_else(|| std::env::var("POSTROOM_URL").ok());
        let untouched = url.is_none() && config.stores.is_empty();
        if config.targets.is_empty() && untouched {
            // Nobody else can be waiting for these messages: show them.
            config.targets.push(Target::everything_to_stdout());
        }
        config.dispatch.enabled &= !config.targets.is_empty();
        let url = url.as_deref().unwrap_or(DEFAULT_URL);
        let targets = config.targets.clone();
        let daemon = Service::start(config, url, |dispatcher| {
            targets::install(dispatcher, &targets)
        })
        .await?;
        // Whoever has read enough may have closed the pipe; the work goes on.
        let _ = daemon.introduce();
        stop_signal().await;
        // Not to standard output: a target may hold it, and nobody may be reading.
        eprintln!("stopping: finishing what runs; once more stops at once");
        tokio::select! {
            () = daemon.stop() => {}
            () = stop_signal() => {}
        }
        Ok(())
    }
}

/// A daemon at work in this process.
pub(crate) struct Service {
    pub(crate) app: App,
    pub(crate) address: SocketAddr,
    running: Option<Arc<Running>>,
    jobs: RunningJobs,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl Service {
    /// Opens the stores (the one at `url`, if the configuration has none), starts everything, and comes
    /// back when requests are answered. `install` adds the handlers.
    pub(crate) async fn start(
        config: Config,
        url: &str,
        install: impl FnOnce(Dispatcher) -> anyhow::Result<Dispatcher>,
    ) -> anyhow::Result<Self> {
        refuse_strangers(&config)?;
        http::check_webhooks(&config.webhooks)?;
        let metrics = PrometheusBuilder::new().build_recorder();
        let handle = metrics.handle();
        // A process may have one recorder only; the demo has started it already, perhaps.
        let _ = metrics::set_global_recorder(metrics);
        let stores = Stores::open(&config, url).await?;
        if let Stores::One { room, .. } = &stores {
            let advice = "run `postroom schema deploy`, or say `deploy = true` in its [[store]]";
            room.verify().await.context(advice)?;
        }
        let listener = TcpListener::bind(config.server.bind)
            .await
            .with_context(|| format!("cannot listen on {}", config.server.bind))?;
        let address = listener.local_addr()?;
        let running = if config.dispatch.enabled {
            let dispatcher = install(dispatcher(&stores, &config))?;
            Some(Arc::new(dispatcher.start()?))
        } else {
            None
        };
        let jobs = jobs(&stores, &config).start()?;
        let app = Arc::new(Daemon {
            auth: Auth::new(&config.auth),
            samples: Samples::default(),
            metrics: handle,
            started: Instant::now(),
            gather: http::api::Gather::default(),
            stores,
            config,
        });
        let stop = CancellationToken::new();
        let sampling = sample(Arc::clone(&app), running.clone());
        let (served, stopped) = (Arc::clone(&app), stop.clone());
        let serving = tokio::spawn(async move {
            tokio::select! {
                () = http::serve(listener, served, stopped) => {}
                () = sampling => {}
            }
        });
        Ok(Self {
            app,
            address,
            running,
            jobs,
            stop,
            serving,
        })
    }

    /// Says where everything is.
    fn introduce(&self) -> std::io::Result<()> {
        let config = &self.app.config;
        out::line(format_args!("postroom is at work"))?;
        for name in self.app.stores.names() {
            out::line(format_args!("  store      {name}"))?;
        }
        out::line(format_args!("  dashboard  http://{}/", self.address))?;
        out::line(format_args!(
            "  API        http://{}/v1/openapi.json",
            self.address
        ))?;
        for webhook in &config.webhooks {
            out::line(format_args!(
                "  webhooks   http://{}/hooks/{}",
                self.address, webhook.source
            ))?;
        }
        match config.targets.as_slice() {
            [] => out::line(format_args!(
                "  dispatch   off: no [[target]] is configured"
            ))?,
            _ if !config.dispatch.enabled => {
                out::line(format_args!("  dispatch   off, as configured"))?
            }
            [only] if only.stdout => {
                out::line(format_args!("  dispatch   messages are printed here"))?
            }
            targets => out::line(format_args!("  dispatch   to {} targets", targets.len()))?,
        }
        out::line("Ctrl-C stops it.")
    }

    /// What became of messages so far.
    pub(crate) fn report(&self) -> Report {
        let running = self.running.as_ref();
        running.map(|running| running.report()).unwrap_or_default()
    }

    /// Stops claiming, lets handlers and requests end, and hands back the rest.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.serving.await;
        self.jobs.stop().await;
        if let Some(running) = self.running.and_then(Arc::into_inner) {
            running.stop().await;
        }
    }
}

/// Without tokens nobody but this machine may connect.
fn refuse_strangers(config: &Config) -> anyhow::Result<()> {
    let bind = config.server.bind;
    if config.auth.tokens.is_empty() && !bind.ip().is_loopback() {
        bail!(
            "{bind} can be reached from other machines, and no tokens are configured: add [[auth.token]], or bind 127.0.0.1"
        );
    }
    Ok(())
}

fn dispatcher(stores: &Stores, config: &Config) -> Dispatcher {
    let dispatch = &config.dispatch;
    let mut dispatcher = config
        .retry
        .install(stores.dispatcher())
        .concurrency(dispatch.concurrency)
        .batch(dispatch.batch)
        .lease(dispatch.lease)
        .poll_interval(dispatch.poll_interval)
        .shutdown_deadline(dispatch.shutdown_deadline);
    if let Stores::One { .. } = stores {
        dispatcher = dispatcher.listen(dispatch.listen);
    }
    if let Some(deliveries) = dispatch.max_deliveries {
        dispatcher = dispatcher.max_deliveries(deliveries);
    }
    dispatcher
}

fn jobs(stores: &Stores, config: &Config) -> Jobs {
    let jobs = match stores {
        Stores::One { room, .. } => Jobs::new().store(room),
        Stores::Many(fleet) => Jobs::new().fleet(fleet),
    };
    let wanted = &config.jobs;
    jobs.outbox_cleanup(cleanup(&wanted.outbox_cleanup, config::KEEP_OUTBOX))
        .inbox_cleanup(cleanup(&wanted.inbox_cleanup, config::KEEP_INBOX))
        .join_cleanup(cleanup(&wanted.join_cleanup, config::KEEP_JOINS))
        .reaping(reaping(&wanted.reaping))
}

fn cleanup(job: &config::Job, keep: Duration) -> Cleanup {
    let mut cleanup =
        Cleanup::older_than(job.keep.unwrap_or(keep)).enabled(job.enabled.unwrap_or(true));
    if let Some(cron) = &job.cron {
        cleanup = cleanup.cron(cron);
    }
    cleanup
}

fn reaping(job: &config::Job) -> Schedule {
    let every_minute = Jobs::new().schedule(Job::Reaping).expression().to_owned();
    Schedule::cron(job.cron.clone().unwrap_or(every_minute)).enabled(job.enabled.unwrap_or(true))
}

/// Takes a sample of every store, again and again.
async fn sample(app: App, running: Option<Arc<Running>>) {
    loop {
        let report = running.as_ref().map(|running| running.report());
        // A dispatcher counts for all its stores together: the first one stands for them.
        let mut retried = report.unwrap_or_default().retried;
        for name in app.stores.names() {
            match sample_of(&app, &name).await {
                Ok(mut sample) => {
                    sample.failed += std::mem::take(&mut retried);
                    app.samples.add(&name, sample);
                }
                Err(reason) => tracing::warn!(store = name, reason, "a store could not be counted"),
            }
        }
        // Without this, durations pile up until somebody scrapes.
        app.metrics.run_upkeep();
        tokio::time::sleep(http::EVERY).await;
    }
}

async fn sample_of(app: &App, name: &str) -> Result<Sample, String> {
    let room = app.stores.room(Some(name));
    let room = room.map_err(|problem| problem.detail().to_owned())?;
    let counted = async { Ok((room.stats().await?, room.totals().await?)) };
    let (stats, totals) = counted
        .await
        .map_err(|error: postroom::Error| error.to_string())?;
    Ok(Sample {
        taken: SystemTime::now(),
        stats,
        done: totals.done,
        failed: totals.died,
    })
}
