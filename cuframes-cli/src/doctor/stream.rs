//! A stream of our own, from end to end.

use std::error::Error;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use cuframes_core::{Format, FrameMeta, Key};
use cuframes_mio::{Publisher, Subscriber};

use super::Check;

pub(super) fn checks() -> Vec<Check> {
    let what = "a stream";
    let start = Instant::now();
    let dir = match tempfile::Builder::new().prefix("cuframes-doctor-").tempdir() {
        Ok(dir) => dir,
        Err(error) => {
            let found = format!("there is no directory to try it in: {error}");
            return vec![Check::problem(what, found, "set TMPDIR to a directory that you may write")];
        }
    };
    vec![match try_out(dir.path()) {
        Ok(()) => {
            Check::ok(what, format!("a frame went through host memory, all in {:.1?}", start.elapsed()))
        }
        Err(error) => Check::problem(what, error.to_string(), "what the lines above say may be why"),
    }]
}

fn try_out(dir: &Path) -> Result<(), Box<dyn Error>> {
    let key: Key = format!("doctor-{}", process::id()).parse()?;
    let meta = FrameMeta::new(Format::GRAY8, 64, 64)?;
    let mut publisher = Publisher::builder(key.clone(), meta).run_dir(dir).create()?.serve()?;
    let mut subscriber = Subscriber::builder(key).run_dir(dir).connect()?;
    let mut claim = publisher.claim()?;
    claim.bytes_mut().fill(MARK);
    claim.commit();
    let frame = subscriber.next(PATIENCE)?.ok_or("no frame arrived")?;
    let is_whole = frame.bytes().is_some_and(|bytes| bytes.iter().all(|byte| *byte == MARK));
    if is_whole { Ok(()) } else { Err("a frame arrived with wrong bytes".into()) }
}

const MARK: u8 = 0xA5;
const PATIENCE: Duration = Duration::from_secs(5);
