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
