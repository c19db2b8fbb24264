//! Which CPU a thread runs on: the writer on the first that may be used, readers on the others.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that this process may use.
///
/// # Errors
/// The kernel does not say.
pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Whether there are enough to keep a writer and its readers apart.
pub(crate) const fn is_possible(cpus: &[usize]) -> bool {
    cpus.len() > 1
}

/// Keeps the calling thread, and threads that it starts afterwards, on the writer's CPU.
pub(crate) fn pin_writer(cpus: &[usize]) -> io::Result<()> {
    match cpus {
        [first, _, ..] => run_on(&[*first]),
        _ => Ok(()),
    }
}

/// Keeps the calling thread on one of the readers' CPUs.
pub(crate) fn pin_reader(cpus: &[usize], index: usize) -> io::Result<()> {
    match cpus {
        [_, others @ ..] if !others.is_empty() => {
            let cpu = others.get(index % others.len()).copied().into_iter().collect::<Vec<_>>();
            run_on(&cpu)
        }
        _ => Ok(()),
    }
}

/// Lets the calling thread run on all of them.
pub(crate) fn run_on(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}
