//! [`Upkeep`]: what the control plane looks after once in a while, because no event tells of it: files that were deleted
//! (P-21), words that somebody has written over (D-23), bells that somebody has filled (§3.7).

use std::sync::Arc;
use std::time::Duration;

use cuframes_core::roster::Roster;
use cuframes_core::{Instant, SubscriberBit};

use crate::builder::Blueprint;
use crate::report::Report;
use crate::shared::Shared;
use crate::shm::{MappedRegion, to_u64};
use crate::stale::Claimed;

/// What is looked after, and when next.
#[derive(Debug)]
pub(crate) struct Upkeep {
    blueprint: Blueprint,
    due: Instant,
}

impl Upkeep {
    pub(crate) fn new(blueprint: Blueprint, now: Instant) -> Self {
        Self { blueprint, due: now + PERIOD }
    }

    /// When it is time to look again.
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// Looks after everything, and says whose wake-up eventfd was filled: that takes intent.
    pub(crate) fn look_after(
        &mut self,
        now: Instant,
        files: &Claimed,
        roster: &Roster<Arc<MappedRegion>>,
        shared: &Shared,
        report: &mut Report,
    ) -> Vec<SubscriberBit> {
        self.due = now + PERIOD;
        self.restore(now, files, roster, shared, report);
        let counters = &shared.counters;
        if counters.region_lost.get() == 0 && files.is_region_lost() {
            counters.region_lost.set(1);
            report.region_lost(files.region_path());
        }
        if counters.socket_lost.get() == 0 && files.is_socket_lost() {
            counters.socket_lost.set(1);
            report.socket_lost(files.socket_path());
        }
        shared.unblock_retired();
        roster.members().map(|member| member.bit).filter(|&bit| shared.unblock(bit)).collect()
    }

    /// Puts right what somebody has written over in the region, where only the publisher may write (D-23).
    pub(crate) fn restore(
        &self,
        now: Instant,
        files: &Claimed,
        roster: &Roster<Arc<MappedRegion>>,
        shared: &Shared,
        report: &mut Report,
    ) {
        let words = self.blueprint.restore(files.region()) + roster.restore();
        if words != 0 {
            shared.counters.restored_words.add(to_u64(words));
            report.restored(now, words);
        }
    }
}

/// The longest that a peer can keep a write of the publisher waiting.
const PERIOD: Duration = Duration::from_secs(1);
