//! [`Backlog`]: connections for which there is something to do, but no event will come.

use std::collections::VecDeque;

use cuframes_core::streams::ConnId;

/// Connections that were left in the middle. Sockets are watched edge-triggered: what was not read to its end is not reported
/// again.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The machine wanted no more of them.
    parked: VecDeque<ConnId>,
    /// The budget was used up.
    due: VecDeque<ConnId>,
}

impl Backlog {
    /// A connection was not read to its end, because the machine wants no more.
    pub(super) fn park(&mut self, id: ConnId) {
        add(&mut self.parked, id);
    }

    /// A connection is to be read and sent to again soon.
    pub(super) fn again(&mut self, id: ConnId) {
        add(&mut self.due, id);
    }

    pub(super) fn parked(&self) -> impl ExactSizeIterator<Item = ConnId> {
        self.parked.iter().copied()
    }

    /// Takes out the one that was parked first.
    pub(super) fn unpark(&mut self) -> Option<ConnId> {
        self.parked.pop_front()
    }

    /// How many are to be read and sent to again.
    pub(super) fn due(&self) -> usize {
        self.due.len()
    }

    /// Takes out the first of them.
    pub(super) fn next_due(&mut self) -> Option<ConnId> {
        self.due.pop_front()
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, id: ConnId) {
        self.parked.retain(|parked| *parked != id);
        self.due.retain(|due| *due != id);
    }
}

/// Each of them once.
fn add(queue: &mut VecDeque<ConnId>, id: ConnId) {
    if !queue.contains(&id) {
        queue.push_back(id);
    }
}
