//! Progress on stderr, for work that takes a while. Nothing shows when stderr is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A line that turns while work of unknown length goes on.
pub(crate) fn spinner(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} {human_pos} ({elapsed})")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let spinner = ProgressBar::new_spinner()
        .with_style(style)
        .with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// A bar for a known number of things.
pub(crate) fn bar(what: &'static str, count: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("  {msg} [{bar:30}] {human_pos} of {human_len}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(count).with_style(style).with_message(what)
}

/// Waits for work that says nothing while it goes on, under a bar that asks now and then how much is
/// left. Nobody is asked when nobody looks.
pub(crate) async fn followed<T, L, E>(
    what: &'static str,
    count: u64,
    work: impl Future<Output = T>,
    left: impl Fn() -> L,
) -> T
where
    L: Future<Output = Result<u64, E>>,
{
    const PAUSE: Duration = Duration::from_millis(500);
    let bar = bar(what, count);
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(PAUSE, &mut work).await {
            bar.finish_and_clear();
            return done;
        }
        if bar.is_hidden() {
            continue;
        }
        if let Ok(left) = left().await {
            bar.set_position(count.saturating_sub(left));
        }
    }
}
