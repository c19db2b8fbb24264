//! Arguments of `doctor`.

use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const EXAMPLES: &str = "\
EXAMPLES:
  cuframes doctor
  cuframes doctor --run-dir /srv/cuframes --json

Each line is ok, a warning (it works, but not as well as it could) or a problem (something of cuframes can't work), the last two \
with what to do. What can be tried is tried: a stream of its own in a temporary directory, descriptors, memory of each GPU.
The exit code is 1 if there is a problem, or a signal ends it before everything was looked at: then --json has is_interrupted as true, and \
what was looked at.";
