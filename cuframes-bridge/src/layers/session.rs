//! [`Sessions`]: what a worker has computed so far, by session.
//!
//! Of each session only the hash of its tokens is known here; its state is the owner's. A session is with the owner for one
//! request at a time. Where there are too many, the one that was not used for the longest time is freed.

use alloc::collections::BTreeMap;

use super::TaskId;
use crate::wire::EMPTY_HASH;

/// The sessions of a worker.
#[derive(Debug)]
pub(crate) struct Sessions {
    max: usize,
    all: BTreeMap<u64, Session>,
    /// Which are with the owner, and for which task; also those that were freed meanwhile.
    busy: BTreeMap<u64, TaskId>,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct Session {
    hash: u64,
    used: u64,
}

/// A session that was taken for a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// It begins with this task: what the owner has of it is to be forgotten.
    pub(crate) is_new: bool,
    /// One that makes room for it.
    pub(crate) freed: Option<u64>,
}

impl Sessions {
    pub(crate) fn new(max: usize) -> Self {
        Self { max: max.max(1), all: BTreeMap::new(), busy: BTreeMap::new(), clock: 0 }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_busy(&self, session: u64) -> bool {
        self.busy.contains_key(&session)
    }

    /// Takes a session that stands at `prefix`, or begins one; `None` if it stands elsewhere.
    pub(crate) fn take(&mut self, session: u64, prefix: u64, task: TaskId) -> Option<Taken> {
        let hash = self.all.get(&session).map(|found| found.hash);
        if hash.unwrap_or(EMPTY_HASH) != prefix {
            return None;
        }
        Some(self.put(session, prefix, hash.is_none(), task))
    }

    /// Takes a session from the start, wherever it stands.
    pub(crate) fn reset(&mut self, session: u64, task: TaskId) -> Taken {
        self.put(session, EMPTY_HASH, true, task)
    }

    /// Takes a session that stands at `hash`; there is none to be begun.
    pub(crate) fn look(&mut self, session: u64, hash: u64, task: TaskId) -> bool {
        let stands = self.all.get(&session).is_some_and(|found| found.hash == hash);
        if stands {
            self.put(session, hash, false, task);
        }
        stands
    }

    /// Gives a session back that now stands at `hash`; `None`: nobody knows where, it is freed. One that was freed while it
    /// was away is not there any more.
    pub(crate) fn give_back(&mut self, session: u64, task: TaskId, hash: Option<u64>) {
        if self.busy.get(&session) != Some(&task) {
            return;
        }
        self.busy.remove(&session);
        match hash {
            None => _ = self.all.remove(&session),
            Some(hash) => {
                if let Some(found) = self.all.get_mut(&session) {
                    found.hash = hash;
                }
            }
        }
    }

    /// Frees all.
    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    fn put(&mut self, session: u64, hash: u64, is_new: bool, task: TaskId) -> Taken {
        let is_there = self.all.contains_key(&session);
        let freed = if !is_there && self.all.len() >= self.max { self.evict() } else { None };
        self.clock += 1;
        self.all.insert(session, Session { hash, used: self.clock });
        self.busy.insert(session, task);
        Taken { is_new, freed }
    }

    /// Frees the one that was not used for the longest time.
    fn evict(&mut self) -> Option<u64> {
        let idle = self.all.iter().filter(|(session, _)| !self.busy.contains_key(session));
        let oldest = idle.min_by_key(|(_, found)| found.used).map(|(session, _)| *session)?;
        self.all.remove(&oldest);
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TaskId = TaskId::new(0);
    const B: TaskId = TaskId::new(1);

    #[test]
    fn a_session_goes_on_where_it_stands_or_from_the_start() {
        let mut sessions = Sessions::new(2);
        assert_eq!(sessions.take(7, 5, A), None);
        assert_eq!(sessions.take(7, EMPTY_HASH, A), Some(Taken { is_new: true, freed: None }));
        assert!(sessions.is_busy(7));
        sessions.give_back(7, A, Some(5));
        assert_eq!(sessions.take(7, EMPTY_HASH, A), None);
        assert!(!sessions.is_busy(7));
        assert_eq!(sessions.take(7, 5, A), Some(Taken { is_new: false, freed: None }));
        sessions.give_back(7, A, Some(6));
        assert_eq!(sessions.reset(7, A), Taken { is_new: true, freed: None });
        sessions.give_back(7, A, None);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn the_session_that_was_not_used_for_the_longest_time_makes_room() {
        let mut sessions = Sessions::new(2);
        for session in [1, 2] {
            sessions.take(session, EMPTY_HASH, A).unwrap();
            sessions.give_back(session, A, Some(9));
        }
        sessions.take(1, 9, A).unwrap();
        sessions.give_back(1, A, Some(9));
        assert_eq!(sessions.take(3, EMPTY_HASH, A).unwrap().freed, Some(2));
        assert_eq!(sessions.take(4, EMPTY_HASH, B).unwrap().freed, Some(1));
        assert_eq!(sessions.len(), 2);
    }

    #[test]
    fn what_was_freed_while_it_was_away_does_not_come_back() {
        let mut sessions = Sessions::new(2);
        sessions.take(7, EMPTY_HASH, A).unwrap();
        sessions.clear();
        assert!(sessions.is_busy(7), "the owner still works on it");
        sessions.give_back(7, B, Some(5));
        assert!(sessions.is_busy(7), "that was another task");
        sessions.give_back(7, A, Some(5));
        assert!(!sessions.is_busy(7) && sessions.len() == 0);
        // A snapshot is taken of what is there.
        assert!(!sessions.look(7, 5, A));
        sessions.reset(7, A);
        sessions.give_back(7, A, Some(5));
        assert!(sessions.look(7, 5, A) && sessions.is_busy(7));
    }
}
