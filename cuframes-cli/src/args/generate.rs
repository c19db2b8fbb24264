//! Arguments of the commands that write what belongs to an installed program.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory, and not the first page to standard output
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

pub(crate) const COMPLETIONS_EXAMPLES: &str = "\
EXAMPLES:
  source <(cuframes completions bash)          # for this shell; in ~/.bashrc for all
  source <(cuframes completions zsh)           # in ~/.zshrc, after compinit
  cuframes completions fish | source           # in ~/.config/fish/config.fish";

pub(crate) const MAN_EXAMPLES: &str = "\
EXAMPLES:
  cuframes man | man -l -
  cuframes man --dir ~/.local/share/man/man1";
