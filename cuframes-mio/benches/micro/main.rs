//! What the operations of a stream cost, in time and in instructions (docs/performance.md).
//!
//! `cargo bench --bench micro` measures time; words after `--` choose among the operations by name. Called with `--count`
//! it does each operation a known number of times inside [`operation::measured`], for `scripts/perf-check`, which has
//! valgrind count the instructions. The operations are the same, so that a number can be held against the other.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a failure ends the measurement")]

use std::cell::RefCell;

use divan::Bencher;
use divan::counter::ItemsCount;

use crate::operation::Operation;

mod codec;
mod handshake;
mod operation;
mod ring;
mod stream;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--count") {
        operation::count(operations());
    } else {
        divan::main();
    }
}

fn operations() -> Vec<Operation> {
    [codec::operations(), handshake::operations(), ring::operations(), stream::operations()].concat()
}

/// One at a time.
#[divan::bench(args = operations().into_iter().filter(Operation::is_single), sample_size = 256, sample_count = 200)]
fn single(bencher: Bencher<'_, '_>, operation: &Operation) {
    let mut work = operation.begin();
    bencher.bench_local(|| work.run());
}

/// Several in a row, because something has to be made ready for them; each counts as an item.
#[divan::bench(args = operations().into_iter().filter(|operation| !operation.is_single()), sample_size = 1, sample_count = 1000)]
fn several(bencher: Bencher<'_, '_>, operation: &Operation) {
    let work = RefCell::new(operation.begin());
    bencher
        .counter(ItemsCount::new(operation.times()))
        .with_inputs(|| work.borrow_mut().prepare())
        .bench_local_values(|()| work.borrow_mut().run());
}
