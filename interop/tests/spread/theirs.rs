//! The server and the workers of daisy, as processes.

use std::path::Path;

use cuframes_dispatch::wire::{Block, Roi};
use cuframes_dispatch::{Context, context};
use cuframes_interop::{Process, python, within};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Python, unless it can't be had.
pub(crate) fn interpreter() -> Option<&'static Path> {
    python(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

/// A script in `python`.
pub(crate) fn script(python: &Path, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Process {
    Process::start_with(python, &[&[path(name).as_str()], arguments].concat(), variables)
}

/// Where it is.
pub(crate) fn path(name: &str) -> String {
    format!("{}/python/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A worker of theirs for the server of this context.
pub(crate) fn worker(python: &Path, context: &Context, arguments: &[&str]) -> Process {
    script(python, "daisy_worker.py", arguments, &[(context::NAME, &context.to_string())])
}

/// What a worker of theirs says about a block: which one it is, what it reads, what it writes.
pub(crate) fn described(block: &Block) -> String {
    let plain = |Roi { offset, shape }: &Roi| format!("{offset:?}+{shape:?}").replace(' ', "");
    let id = &block.block_id;
    format!("{} {} {} {}", id.task_id, id.spatial_id, plain(&block.read_roi), plain(&block.write_roi))
}

/// Their server.
pub(crate) struct Theirs {
    process: Process,
    reports: TcpListener,
}

/// A worker that their server believes to have, as long as this is there.
pub(crate) struct Place {
    pub(crate) context: Context,
    _report: BufReader<TcpStream>,
}

impl Place {
    pub(crate) fn port(&self) -> u16 {
        self.context.port().unwrap()
    }

    async fn of(report: TcpStream) -> Self {
        let (mut report, mut line) = (BufReader::new(report), String::new());
        within("the context of a worker", report.read_line(&mut line)).await.unwrap();
        Self { context: Context::parse(line.trim_end()).unwrap(), _report: report }
    }
}

impl Theirs {
    /// A server with these tasks: JSON objects with the arguments of `daisy.Task`.
    pub(crate) async fn start(python: &Path, tasks: &Value) -> Self {
        let reports = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let report = reports.local_addr().unwrap().to_string();
        let process = script(python, "daisy_server.py", &[&report, &tasks.to_string()], &[]);
        Self { process, reports }
    }

    /// The next worker that it starts.
    pub(crate) async fn place(&self) -> Place {
        let (report, _) = within("a worker that is to be started", self.reports.accept()).await.unwrap();
        Place::of(report).await
    }

    /// Lets `work` be every worker that it starts until its end: the states of its tasks.
    pub(crate) async fn staffed<F: Future<Output = ()> + Send + 'static>(
        mut self,
        mut work: impl FnMut(Place) -> F,
    ) -> Value {
        let mut workers = Vec::new();
        let states = loop {
            tokio::select! {
                states = self.process.says("STATES") => break states,
                report = self.reports.accept() => {
                    let place = Place::of(report.unwrap().0).await;
                    workers.push(tokio::spawn(work(place)));
                }
            }
        };
        for worker in workers {
            worker.await.unwrap();
        }
        self.process.end().await;
        serde_json::from_str(&states).unwrap()
    }

    /// Waits for its end, whichever that is.
    pub(crate) async fn ends(self) -> (Vec<String>, bool) {
        self.process.ends().await
    }
}

/// The counts of a task: succeeded, failed, orphaned.
pub(crate) fn counts(states: &Value, task_id: &str) -> [u64; 3] {
    let counts = ["completed_count", "failed_count", "orphaned_count"];
    counts.map(|count| states[task_id][count].as_u64().unwrap())
}
