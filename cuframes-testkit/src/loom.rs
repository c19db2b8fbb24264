//! The shipped ring on a model checker's words, and what a model needs to play both sides of it.
//!
//! The checker runs a model once for every way in which its threads can interleave (up to a number of preemptions) and
//! for every value that a load may return under the orderings in the code. Nothing of the ring is copied here: its code
//! is generic over the word. A [`Weakening`] changes what one step of that code does, so that a model can show that it
//! would notice.
//!
//! # What it does not show
//!
//! - A load never returns what is stored later in the execution. So no model can tell whether the release of a lease or
//!   an acknowledgement is ordered after the loads of the frame: its `Release` and the writer's `Acquire` are not tested.
//! - After a load the checker no longer tries other threads' earlier loads of the same word after a later store of this
//!   thread (tokio-rs/loom#166). [`LoomWord`] avoids it for `last_seen_seq`; in the model of accusations the roster,
//!   which counts terms that way, runs first.
//! - An acquire fence also synchronizes with what other threads have read before they synchronized with this one.
//! - Time, system calls, words of another size, and a side that dies.
//! - Words that a model does not name in its list have one value for everybody.

mod ring;
pub mod weakened;
mod word;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

pub use ring::{Bell, Driver, Frames, LoomReader, LoomRing, LoomWriter, Place, Seen};
pub use word::{Access, AsShipped, Field, LoomRegion, LoomWord, Step, Weakening};

/// Runs a model through every execution, and says how many there were.
///
/// # Panics
/// In the first execution in which the model panics, or in which all threads wait for each other.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.max_branches = BRANCHES;
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    let start = Instant::now();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    let current = thread::current();
    let name = current.name().unwrap_or_default();
    // Not `eprintln!`, which would be captured. The figures stand beside each model.
    let _ = writeln!(io::stderr(), "{name}: {executions} executions, {:.1} s", start.elapsed().as_secs_f64());
}

/// How often a thread may be interrupted at a place of the checker's choice; waiting for another thread costs nothing.
const PREEMPTIONS: usize = 3;
/// The most steps of one execution.
const BRANCHES: usize = 3000;
