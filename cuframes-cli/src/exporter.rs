//! `cuframes exporter`: the streams for Prometheus, and a small page for people.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cuframes_mio::Observer;

use crate::args::ExporterArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::model::{Model, Report};
use crate::output;
use crate::signals::Signals;

mod metrics;
mod pictures;
mod server;

/// What is served, as of the last look.
#[derive(Default)]
struct Shown {
    metrics: String,
    streams: String,
}

pub(crate) fn run(
    args: &ExporterArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let listener = listen(args.listen).map_err(|error| {
        failed!("can't listen on {}: {error}; choose another address with --listen", args.listen)
    })?;
    let address = listener.local_addr().unwrap_or(args.listen);
    if !address.ip().is_loopback() {
        console.say(&format!("{address} can be reached from elsewhere, and nobody is asked for a password"));
    }
    let shown = Arc::new(Mutex::new(Shown::default()));
    let mut watcher =
        Watcher { observer: Observer::new(run_dir), model: Model::default(), has_pictures: args.pictures };
    watcher.look(&shown)?;
    let pictures = args.pictures.then(|| pictures::Pictures::new(run_dir));
    let server = server::start(listener, Arc::clone(&shown), pictures)
        .map_err(|error| failed!("can't serve: {error}; raise the limits (ulimit -n, ulimit -u)"))?;
    console.say(&format!("listening on http://{address}/ and http://{address}/metrics"));
    while !signals.wait(args.interval) {
        watcher.look(&shown)?;
    }
    server.stop(GRACE);
    Ok(())
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Looks at the streams.
struct Watcher {
    observer: Observer,
    model: Model,
    has_pictures: bool,
}

impl Watcher {
    fn look(&mut self, shown: &Mutex<Shown>) -> Result<(), Failure> {
        let (sightings, troubles) = self.observer.streams();
        self.model.look(Instant::now(), sightings);
        let report = Report {
            streams: self.model.streams.iter().collect(),
            troubles: troubles.iter().map(ToString::to_string).collect(),
            has_pictures: Some(self.has_pictures),
        };
        let next = Shown { metrics: metrics::text(&self.model), streams: output::json(&report)? };
        *shown.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

/// How long those who are being answered are waited for.
const GRACE: Duration = Duration::from_secs(1);
