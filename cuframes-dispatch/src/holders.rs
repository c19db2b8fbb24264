//! [`Holders`]: who has which blocks, and who owes an answer about one that was taken from it.

use alloc::collections::{BTreeMap, BTreeSet};

use cuframes_core::Instant;
use cuframes_core::streams::ConnId;

use crate::scheduler::Ref;
use crate::task::Released;

/// Those who have blocks, or had.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    all: BTreeMap<ConnId, Holder>,
    /// When an answer that is owed is waited for no longer.
    patience: BTreeSet<(Instant, ConnId, Ref)>,
    /// For whom that was in vain, and the first of those blocks.
    silent: BTreeMap<ConnId, Ref>,
}

#[derive(Debug, Default)]
struct Holder {
    has: BTreeSet<Ref>,
    /// What was taken from it, so that a late answer is none that is wrong, and until when that is waited for.
    owes: BTreeMap<Ref, Instant>,
}

impl Holders {
    /// It gets a block.
    pub(crate) fn give(&mut self, holder: ConnId, at: Ref) {
        self.all.entry(holder).or_default().has.insert(at);
    }

    /// A block is taken from it, unless it has answered.
    pub(crate) fn take(&mut self, holder: ConnId, at: Ref, until: Instant) {
        if let Some(held) = self.all.get_mut(&holder)
            && held.has.remove(&at)
        {
            held.owes.insert(at, until);
            self.patience.insert((until, holder, at));
        }
    }

    /// It answers about a block.
    pub(crate) fn answer(&mut self, holder: ConnId, at: Ref) -> Released {
        let Some(held) = self.all.get_mut(&holder) else { return Released::Foreign };
        if held.has.remove(&at) {
            return Released::Accepted;
        }
        let Some(until) = held.owes.remove(&at) else { return Released::Foreign };
        self.patience.remove(&(until, holder, at));
        Released::Late
    }

    /// Whether it owes an answer about any block.
    pub(crate) fn owes_any(&self, holder: ConnId) -> bool {
        self.all.get(&holder).is_some_and(|held| !held.owes.is_empty())
    }

    pub(crate) fn owes(&self, holder: ConnId, at: Ref) -> bool {
        self.all.get(&holder).is_some_and(|held| held.owes.contains_key(&at))
    }

    /// It is forgotten. Answers what it has.
    pub(crate) fn remove(&mut self, holder: ConnId) -> BTreeSet<Ref> {
        self.silent.remove(&holder);
        let Holder { has, owes } = self.all.remove(&holder).unwrap_or_default();
        for (at, until) in owes {
            self.patience.remove(&(until, holder, at));
        }
        has
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some((until, holder, at)) =
            self.patience.first().copied().filter(|(until, ..)| *until <= now)
        {
            self.patience.remove(&(until, holder, at));
            if let Some(held) = self.all.get_mut(&holder) {
                held.owes.remove(&at);
            }
            self.silent.entry(holder).or_insert(at);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.patience.first().map(|(until, ..)| *until)
    }

    /// Somebody who has owed an answer for too long.
    pub(crate) fn poll_silent(&mut self) -> Option<(ConnId, Ref)> {
        self.silent.pop_first()
    }
}
