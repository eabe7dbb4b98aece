//! `postroom doctor`: what is wrong with a store, and what to do about it.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use postroom::{Diagnosis, Finding, Postroom, Severity};
use serde_json::{Value, json};

use crate::config::Config;
use crate::store::StoreArguments;
use crate::{out, table};

/// Find out what is wrong with a store, and what to do about it
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom doctor
  postroom doctor --config postroom.toml          work nobody handles, by the targets that it names
  postroom doctor --topics order.created,order.paid
  postroom doctor --json | jq '.findings[] | select(.severity == \"critical\")'

It looks for: a database that does not answer, a schema that is missing or not this version's, a held \
snapshot, work that nobody handles, expired leases, a clock that differs, missing indexes, an old SQLite, \
and tables that grow. Nothing is changed, but an SQLite file that is opened is in write-ahead mode from then on.

Exit code 0 when all is well, 1 when something was found, be it a warning or critical.")]
pub(crate) struct Arguments {
    /// The topics that somebody handles: what waits under another one is reported
    #[arg(long, value_name = "TOPIC,…", value_delimiter = ',')]
    topics: Vec<String>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

/// One line of the report: something that was checked, or found.
struct Remark {
    severity: Option<Severity>,
    cause: String,
    summary: String,
    advice: Option<String>,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let remarks = self.examine().await?;
        let is_fine = remarks.iter().all(|remark| remark.severity.is_none());
        if self.json {
            let findings: Vec<Value> = remarks
                .iter()
                .filter_map(|remark| {
                    Some(json!({
                        "severity": remark.severity?.name(),
                        "cause": remark.cause,
                        "summary": remark.summary,
                        "advice": remark.advice,
                    }))
                })
                .collect();
            out::json(&json!({ "fine": is_fine, "findings": findings }))?;
        } else {
            for remark in &remarks {
                remark.print()?;
            }
            if is_fine {
                out::line("\nall is well")?;
            }
        }
        Ok(if is_fine {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    /// Each step needs the one before.
    async fn examine(&self) -> anyhow::Result<Vec<Remark>> {
        let config = self.store.configuration()?;
        let place = self.store.place()?;
        let started = Instant::now();
        let room = match place.open().await {
            Ok(room) => room,
            Err(error) => {
                return Ok(vec![Remark {
                    severity: Some(Severity::Critical),
                    cause: "connection".to_owned(),
                    summary: format!("{error:#}"),
                    advice: Some(
                        "check that the database runs, and that --url, POSTROOM_URL or postroom.toml is right"
                            .to_owned(),
                    ),
                }]);
            }
        };
        let mut remarks = vec![Remark::fine(
            "connection",
            format!(
                "{} answers, connected in {} ms",
                room.identifier(),
                started.elapsed().as_millis()
            ),
        )];
        let findings = self.diagnose(&room, &config).await;
        let has_a_name = |findings: &Vec<Remark>| {
            let mut causes = findings.iter().map(|finding| finding.cause.as_str());
            causes.any(|cause| matches!(cause, "schema" | "missing_index"))
        };
        if !findings.as_ref().is_ok_and(has_a_name) {
            if let Err(error) = room.verify().await {
                remarks.push(Remark {
                    severity: Some(Severity::Critical),
                    cause: "schema".to_owned(),
                    summary: error.to_string(),
                    advice: Some("run `postroom schema deploy`".to_owned()),
                });
                remarks.extend(findings.unwrap_or_default());
                return Ok(remarks);
            }
            let summary = "complete, and this version's".to_owned();
            remarks.push(Remark::fine("schema", summary));
        }
        remarks.extend(findings?);
        Ok(remarks)
    }

    async fn diagnose(&self, room: &Postroom, config: &Config) -> anyhow::Result<Vec<Remark>> {
        let diagnosis = Diagnosis::default().topics(self.handled(config));
        let findings = room.diagnose_with(&diagnosis).await?;
        Ok(findings.into_iter().map(Remark::from).collect())
    }

    /// The topics that somebody handles; none when nobody said, or when a target takes all.
    fn handled(&self, config: &Config) -> Vec<String> {
        let targets = config.targets.iter();
        let topics: Vec<String> = targets
            .flat_map(|target| target.topics.iter().cloned())
            .chain(self.topics.iter().cloned())
            .collect();
        if topics.iter().any(|topic| topic == "*") {
            return Vec::new();
        }
        topics
    }
}

impl Remark {
    fn fine(cause: &str, summary: String) -> Self {
        Self {
            severity: None,
            cause: cause.to_owned(),
            summary,
            advice: None,
        }
    }

    fn print(&self) -> std::io::Result<()> {
        let mark = self.severity.map_or("ok", Severity::name);
        out::line(format_args!(
            "{mark:<8}  {}: {}",
            self.cause.replace('_', " "),
            table::plain(&self.summary)
        ))?;
        match &self.advice {
            Some(advice) => out::line(format_args!("{:<8}  {}", "", table::plain(advice))),
            None => Ok(()),
        }
    }
}

impl From<Finding> for Remark {
    fn from(finding: Finding) -> Self {
        Self {
            severity: Some(finding.severity),
            cause: finding.cause.name().to_owned(),
            summary: finding.summary,
            advice: Some(finding.advice),
        }
    }
}
