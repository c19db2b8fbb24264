//! `cuframes completions` and `cuframes man`: made of the command line itself, so that they are always right.

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::signals::Signals;

pub(crate) fn completions(
    args: &CompletionsArgs,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    console.print(String::from_utf8_lossy(&script).trim_end(), signals)
}

pub(crate) fn man(args: &ManArgs, signals: &Signals, console: &Console) -> Result<(), Failure> {
    if let Some(dir) = &args.dir {
        let failed = |error| failed!("can't write the pages to {}: {error}", dir.display());
        std::fs::create_dir_all(dir).map_err(failed)?;
        return clap_mangen::generate_to(Cli::command(), dir).map_err(failed);
    }
    let mut page = Vec::new();
    let rendered = Man::new(Cli::command()).render(&mut page);
    rendered.map_err(|error| failed!("can't make the page: {error}"))?;
    console.print(String::from_utf8_lossy(&page).trim_end(), signals)
}

const NAME: &str = "cuframes";
