//! [`Parking`]: requests that wait for a block.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use cuframes_core::streams::ConnId;

/// Requests, each for a block of one task. Nothing here takes longer the more of them there are, but for a logarithm.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    /// By task and age.
    all: BTreeMap<Place, ConnId>,
    of: BTreeMap<ConnId, BTreeSet<Place>>,
    next: u64,
}

/// The task, by its place, and a number that grows.
pub(crate) type Place = (usize, u64);

impl Parking {
    /// A request waits.
    pub(crate) fn park(&mut self, conn: ConnId, task: usize) {
        let place = (task, self.next);
        self.next += 1;
        self.all.insert(place, conn);
        self.of.entry(conn).or_default().insert(place);
    }

    /// How many requests of this one wait.
    pub(crate) fn count(&self, conn: ConnId) -> usize {
        self.of.get(&conn).map_or(0, BTreeSet::len)
    }

    /// The oldest request for this task, or the oldest after another one.
    pub(crate) fn next(&self, task: usize, after: Option<Place>) -> Option<(Place, ConnId)> {
        let from = after.map_or(Bound::Included((task, 0)), Bound::Excluded);
        self.all.range((from, Bound::Included((task, u64::MAX)))).next().map(|(place, conn)| (*place, *conn))
    }

    /// One was answered.
    pub(crate) fn remove(&mut self, place: Place) {
        if let Some(conn) = self.all.remove(&place)
            && let Some(places) = self.of.get_mut(&conn)
        {
            places.remove(&place);
            if places.is_empty() {
                self.of.remove(&conn);
            }
        }
    }

    /// Nobody is there any more who waits for an answer.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        for place in self.of.remove(&conn).unwrap_or_default() {
            self.all.remove(&place);
        }
    }

    /// Takes all of them, one after the other.
    pub(crate) fn pop(&mut self) -> Option<ConnId> {
        let (place, conn) = self.all.first_key_value().map(|(place, conn)| (*place, *conn))?;
        self.remove(place);
        Some(conn)
    }
}
