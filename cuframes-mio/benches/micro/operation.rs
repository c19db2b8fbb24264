//! [`Operation`]: something whose cost is of interest, by its name.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

/// Something that can be done again and again.
pub(crate) trait Work {
    /// Makes ready for the next [`run`](Self::run); not measured.
    fn prepare(&mut self) {}

    /// Does it, as often as its operation says.
    fn run(&mut self);
}

impl<F: FnMut()> Work for F {
    fn run(&mut self) {
        self();
    }
}

/// Work that needs something made ready each time.
struct Prepared<S> {
    state: S,
    prepare: fn(&mut S),
    run: fn(&mut S),
}

impl<S> Work for Prepared<S> {
    fn prepare(&mut self) {
        (self.prepare)(&mut self.state);
    }

    fn run(&mut self) {
        (self.run)(&mut self.state);
    }
}

/// A named operation, and how to begin it.
#[derive(Clone)]
pub(crate) struct Operation {
    name: String,
    /// How often one run does it.
    times: usize,
    is_single: bool,
    begin: Arc<dyn Fn() -> Box<dyn Work> + Send + Sync>,
}

impl Operation {
    /// Does what `begin` returns, which needs nothing made ready.
    pub(crate) fn single<W: FnMut() + 'static>(
        name: impl Into<String>,
        begin: impl Fn() -> W + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), times: 1, is_single: true, begin: Arc::new(move || Box::new(begin())) }
    }

    /// Each `run` does it `times` times, after `prepare`.
    pub(crate) fn several<S: 'static>(
        name: impl Into<String>,
        times: usize,
        begin: impl Fn() -> S + Send + Sync + 'static,
        prepare: fn(&mut S),
        run: fn(&mut S),
    ) -> Self {
        let begin = move || -> Box<dyn Work> { Box::new(Prepared { state: begin(), prepare, run }) };
        Self { name: name.into(), times, is_single: false, begin: Arc::new(begin) }
    }

    /// Everything that it needs, at its beginning.
    pub(crate) fn begin(&self) -> Box<dyn Work> {
        (self.begin)()
    }

    pub(crate) const fn times(&self) -> usize {
        self.times
    }

    pub(crate) const fn is_single(&self) -> bool {
        self.is_single
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Does each operation, and says after each how often [`measured`] was called since the one before, how often each call
/// did it, and what it is.
pub(crate) fn count(operations: Vec<Operation>) {
    for operation in operations {
        let mut work = operation.begin();
        for _ in 0..WARM_UP {
            work.prepare();
            work.run();
        }
        for _ in 0..RUNS {
            work.prepare();
            measured(&mut *work);
        }
        counted();
        println!("{RUNS}\t{}\t{}", operation.times, operation.name);
    }
}

/// Instructions are counted in here, and in what it calls, and nowhere else.
#[inline(never)]
fn measured(work: &mut dyn Work) {
    work.run();
    // So that this function is left only when the work is done.
    black_box(());
}

/// What was counted is written down when this is left, and counting begins anew.
#[inline(never)]
fn counted() {
    black_box(());
}

/// Rounds of the ring before anything is counted: every slot has been used, and every buffer has grown.
const WARM_UP: usize = 32;
/// How often each operation is run.
const RUNS: usize = 64;
