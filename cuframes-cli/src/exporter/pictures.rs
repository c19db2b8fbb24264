//! [`Pictures`]: the last frame of each stream as PNG, made by a process of its own, which subscribes for that.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cuframes_core::Key;
use hyper::body::Bytes;
use tokio::process::Command;
use tokio::sync::{Mutex, Semaphore};

/// Takes pictures, and keeps each for a moment: many may look at one page.
#[derive(Debug)]
pub(super) struct Pictures {
    run_dir: Option<PathBuf>,
    kept: Mutex<HashMap<Key, Arc<Mutex<Option<Kept>>>>>,
    /// So many are made at the same time.
    hands: Semaphore,
}

#[derive(Debug)]
struct Kept {
    since: Instant,
    png: Option<Bytes>,
}

impl Pictures {
    pub(super) fn new(run_dir: Option<&Path>) -> Self {
        Self { run_dir: run_dir.map(Into::into), kept: Mutex::default(), hands: Semaphore::new(AT_ONCE) }
    }

    /// The last frame. `None` if there is none, or none that is a picture.
    pub(super) async fn of(&self, key: Key) -> Option<Bytes> {
        let place = {
            let mut kept = self.kept.lock().await;
            if kept.len() >= MOST_KEYS && !kept.contains_key(&key) {
                kept.clear();
            }
            Arc::clone(kept.entry(key.clone()).or_default())
        };
        let mut place = place.lock().await;
        if let Some(Kept { since, png }) = &*place
            && since.elapsed() < FRESH
        {
            return png.clone();
        }
        let png = self.take(&key).await;
        *place = Some(Kept { since: Instant::now(), png: png.clone() });
        png
    }

    async fn take(&self, key: &Key) -> Option<Bytes> {
        let _hand = self.hands.acquire().await.ok()?;
        let mut command = Command::new(env::current_exe().ok()?);
        command.args(["snapshot", "--timeout", "2"]);
        if let Some(run_dir) = &self.run_dir {
            command.arg("--run-dir").arg(run_dir);
        }
        command.args(["--", key.as_str(), "-"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, command.output()).await.ok()?.ok()?;
        output.status.success().then(|| output.stdout.into())
    }
}

const AT_ONCE: usize = 2;
/// How long a picture is good for.
const FRESH: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// Keys are what the caller likes; those of streams are fewer.
const MOST_KEYS: usize = 256;
