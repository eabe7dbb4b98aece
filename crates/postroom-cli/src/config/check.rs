//! `postroom config`: look at a configuration before the daemon does.

use clap::Args;

/// Check a configuration, or print an example of one
#[derive(Args)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        Ok(())
    }
}
