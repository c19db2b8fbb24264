//! [`StepWord`]: a word that a process may die at. Whoever is [run to die](die_after) stores so many times and then never
//! again, as if the process had been killed between two instructions.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use cuframes_core::shm::Word;

/// An `AtomicU64` whose stores count.
#[derive(Debug)]
pub struct StepWord(AtomicU64);

/// Runs `script` as a process that dies after its `stores`-th store to any [`StepWord`]: what it does afterwards, in
/// destructors for one, changes nothing. Returns `None` if it died, and what `script` returned if it came to its end.
pub fn die_after<R>(stores: usize, script: impl FnOnce() -> R) -> Option<R> {
    LIFE.set(Life::Doomed(stores));
    let ended = catch_unwind(AssertUnwindSafe(script));
    LIFE.set(Life::Safe);
    match ended {
        Ok(result) => Some(result),
        Err(panic) if panic.is::<Died>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Inside a script: runs what another process does meanwhile, whose stores do not count.
pub fn meanwhile<R>(other: impl FnOnce() -> R) -> R {
    let life = LIFE.replace(Life::Safe);
    let result = other();
    LIFE.set(life);
    result
}

/// What became of the thread that plays a process.
#[derive(Clone, Copy)]
enum Life {
    Safe,
    /// Dies when so many more stores were made.
    Doomed(usize),
    Dead,
}

/// How a dead process leaves its script.
struct Died;

thread_local! {
    static LIFE: Cell<Life> = const { Cell::new(Life::Safe) };
}

impl StepWord {
    /// Makes a write that counts as a store, unless the process is dead.
    fn write<R>(&self, write: impl FnOnce(&AtomicU64) -> R, dead: impl FnOnce(u64) -> R) -> R {
        match LIFE.get() {
            Life::Safe => write(&self.0),
            Life::Dead => dead(self.0.load(Ordering::Relaxed)),
            Life::Doomed(0) => {
                LIFE.set(Life::Dead);
                // Not `panic!`: nothing is to be printed.
                resume_unwind(Box::new(Died))
            }
            Life::Doomed(left) => {
                LIFE.set(Life::Doomed(left - 1));
                write(&self.0)
            }
        }
    }
}

impl Word for StepWord {
    const LOOKS: u32 = 4;

    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.write(|word| word.store(value, order), |_| ());
    }

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.write(|word| word.fetch_or(bits, order), |value| value)
    }

    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.write(|word| word.fetch_and(bits, order), |value| value)
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        // A dead process believes that it succeeded, so that no loop of it goes on for ever.
        self.write(|word| word.compare_exchange(current, new, success, failure), |_| Ok(current))
    }

    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }

    fn pause() {}
}
