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
  cuframes completions bash > ~/.local/share/bash-completion/completions/cuframes
  cuframes completions zsh > \"${fpath[1]}/_cuframes\"
  cuframes completions fish > ~/.config/fish/completions/cuframes.fish";

pub(crate) const MAN_EXAMPLES: &str = "\
EXAMPLES:
  cuframes man | man -l -
  cuframes man --dir ~/.local/share/man/man1";
