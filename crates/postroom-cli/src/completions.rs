//! `postroom completions`: what a shell needs to complete commands and options.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print completions for a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom completions bash > ~/.local/share/bash-completion/completions/postroom
  postroom completions zsh > ~/.zfunc/_postroom
  postroom completions fish > ~/.config/fish/completions/postroom.fish
  postroom completions powershell >> $PROFILE")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        let mut command = crate::Arguments::command();
        clap_complete::generate(self.shell, &mut command, "postroom", &mut script);
        std::io::stdout().write_all(&script)?;
        Ok(())
    }
}
