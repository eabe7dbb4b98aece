//! What the demo says, and what it found to be right or wrong.

use std::fmt::Debug;
use std::io::Write;
use std::time::Duration;

use anyhow::ensure;

pub(super) struct Story {
    out: std::io::Stdout,
    checks: u32,
    wrong: u32,
}

impl Story {
    pub(super) fn new() -> Self {
        Self {
            out: std::io::stdout(),
            checks: 0,
            wrong: 0,
        }
    }

    pub(super) fn open(&mut self, store: &str) -> anyhow::Result<()> {
        writeln!(
            self.out,
            "A shop, its orders and their messages, on {store}"
        )?;
        Ok(())
    }

    pub(super) fn title(&mut self, title: &str) -> anyhow::Result<()> {
        writeln!(self.out, "\n{title}")?;
        Ok(())
    }

    pub(super) fn line(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.out, "   {line}")?;
        Ok(())
    }

    pub(super) fn check<T: PartialEq + Debug>(
        &mut self,
        what: &str,
        expected: &T,
        actual: &T,
    ) -> anyhow::Result<()> {
        self.checks += 1;
        if expected == actual {
            writeln!(self.out, " ✓ {what}")?;
        } else {
            self.wrong += 1;
            writeln!(
                self.out,
                " ✗ {what}: expected {expected:?}, found {actual:?}"
            )?;
        }
        Ok(())
    }

    /// Whether everything was right.
    pub(super) fn reckon(&mut self, took: Duration) -> anyhow::Result<()> {
        ensure!(
            self.wrong == 0,
            "{} of {} checks failed; please report this",
            self.wrong,
            self.checks
        );
        writeln!(
            self.out,
            "\nAll {} checks passed, in {:.1} s.",
            self.checks,
            took.as_secs_f64()
        )?;
        Ok(())
    }

    pub(super) fn end(mut self, left_behind: Option<String>) -> anyhow::Result<()> {
        writeln!(
            self.out,
            "\nTry next (in the source tree, write `cargo run --release --` for `postroom`):"
        )?;
        match left_behind {
            Some(store) => {
                writeln!(self.out, "  postroom stats {store}")?;
                writeln!(self.out, "  postroom dead list {store}")?;
            }
            None => writeln!(
                self.out,
                "  postroom demo --keep                       leave the tables, to look at them"
            )?,
        }
        writeln!(
            self.out,
            "  postroom serve                             the daemon and its dashboard, for your own messages"
        )?;
        writeln!(
            self.out,
            "  postroom --help                            and docs/getting-started.md: a first program"
        )?;
        Ok(())
    }
}
