//! [`Penalties`]: who was evicted lately, and how long it has to stay away (D-31).
//!
//! A process that hangs and comes back at once would cost the stream a deadline each time. So after its first eviction it
//! may come back at once, and after each further one only after a pause that doubles. Time is an argument.

use std::time::Duration;

use cuframes_core::Instant;
use rustix::fs::{fstat, fstatfs};

use crate::liveness::{PeerCred, PidFd};

/// The processes that were evicted lately.
#[derive(Default, Debug)]
pub(crate) struct Penalties {
    convicts: Vec<Convict>,
}

#[derive(Debug)]
struct Convict {
    who: Culprit,
    evictions: u32,
    /// When it may come back.
    until: Instant,
}

impl Penalties {
    /// A process was evicted, and cost the stream that much time.
    pub(crate) fn evicted(&mut self, now: Instant, who: Culprit, cost: Duration) {
        self.convicts.retain(|convict| now < convict.until + MEMORY);
        let index = self.convicts.iter().position(|convict| convict.who.is(&who));
        let before = index.map(|index| self.convicts.swap_remove(index).evictions);
        let evictions = before.unwrap_or(0).saturating_add(1);
        if self.convicts.len() == MAX_CONVICTS {
            // Whoever would be forgotten first.
            let first = (0..).zip(&self.convicts).min_by_key(|(_, convict)| convict.until);
            if let Some((index, _)) = first {
                self.convicts.swap_remove(index);
            }
        }
        let pause = match evictions.checked_sub(2) {
            None => Duration::ZERO,
            Some(doublings) => cost.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX_PAUSE),
        };
        self.convicts.push(Convict { who, evictions, until: now + pause });
    }

    /// How long a process has to stay away yet; `None` if it may come in.
    pub(crate) fn pause(&self, now: Instant, who: impl FnOnce() -> Culprit) -> Option<Duration> {
        if self.convicts.iter().all(|convict| convict.until <= now) {
            // The usual case costs no system call.
            return None;
        }
        let who = who();
        let convict = self.convicts.iter().find(|convict| convict.who.is(&who))?;
        Some(convict.until.saturating_since(now)).filter(|pause| !pause.is_zero())
    }
}

/// Which process, as far as the kernel tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Culprit {
    /// In our pid namespace.
    pid: Option<u32>,
    /// The number of its inode among the pidfds, which is never used again (since Linux 6.9).
    number: Option<u64>,
}

impl Culprit {
    pub(crate) fn new(PeerCred { pid, .. }: PeerCred, process: Option<&PidFd>) -> Self {
        let is_of_pidfs = |process: &&PidFd| fstatfs(process).is_ok_and(|fs| fs.f_type == PIDFS);
        let number = process.filter(is_of_pidfs).and_then(|process| fstat(process).ok());
        Self { pid, number: number.map(|stat| stat.st_ino) }
    }

    /// Whether that is the same one. Of a process that nothing is known of, nobody can tell.
    fn is(&self, other: &Self) -> bool {
        match (self.number, other.number) {
            (Some(number), Some(other)) => number == other,
            _ => self.pid.is_some() && self.pid == other.pid,
        }
    }
}

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How long a process is remembered after its pause.
const MEMORY: Duration = Duration::from_secs(60);
/// As many processes are remembered.
const MAX_CONVICTS: usize = 64;
/// The file system of pidfds: `PID_FS_MAGIC`.
const PIDFS: rustix::fs::FsWord = 0x5049_4446;

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000_000_000);
    const COST: Duration = Duration::from_secs(1);

    fn process(pid: u32) -> Culprit {
        Culprit { pid: Some(pid), number: None }
    }

    #[test]
    fn the_pause_after_each_further_eviction_doubles_up_to_the_longest() {
        let (mut penalties, mut now) = (Penalties::default(), START);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            penalties.evicted(now, process(7), COST);
            let pause = penalties.pause(now, || process(7)).unwrap_or_default();
            pauses.push(pause.as_secs());
            assert_eq!(penalties.pause(now, || process(8)), None);
            now = now + pause;
            assert_eq!(penalties.pause(now, || process(7)), None, "the pause is over");
            now = now + COST;
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn who_was_not_evicted_for_a_while_is_forgotten() {
        let mut penalties = Penalties::default();
        for _ in 0..3 {
            penalties.evicted(START, process(7), COST);
        }
        let free = START + 2 * COST;
        penalties.evicted(free + (MEMORY - Duration::from_nanos(1)), process(8), COST);
        assert_eq!(penalties.convicts.len(), 2);
        penalties.evicted(free + MEMORY, process(7), COST);
        assert_eq!(penalties.pause(free + MEMORY, || process(7)), None, "that is its first again");
    }

    #[test]
    fn no_more_processes_are_remembered_than_there_is_room_for() {
        let mut penalties = Penalties::default();
        for _ in 0..2 {
            penalties.evicted(START, process(1), COST);
        }
        for pid in (2..).take(2 * MAX_CONVICTS) {
            penalties.evicted(START, process(pid), COST);
        }
        assert_eq!(penalties.convicts.len(), MAX_CONVICTS);
        assert_eq!(penalties.pause(START, || process(1)), Some(COST), "it has longest to go");
    }

    #[test]
    fn a_process_is_known_by_its_pidfd_and_without_one_by_its_pid() {
        let numbered = |pid, number| Culprit { pid, number: Some(number) };
        assert!(numbered(None, 5).is(&numbered(Some(7), 5)), "its pid is seen from one namespace only");
        assert!(!numbered(Some(7), 5).is(&numbered(Some(7), 6)), "the pid was used again");
        assert!(numbered(Some(7), 5).is(&process(7)));
        let unknown = Culprit { pid: None, number: None };
        assert!(!unknown.is(&unknown));
    }
}
