//! [`Roster`]: who is subscribed. The only thing that the sessions of one publisher share (§4.2, D-5, D-19, D-26).
//!
//! It assigns bits, writes the subscriber slots of the region (§2.3), and keeps the membership that the ring's writer
//! reads ([`Members`]). It runs on the control plane's thread; the writer may run on another.

use alloc::sync::Arc;
use core::array;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use core::time::Duration;

use crate::config::{Features, SubscriberBit, SubscriberMode};
use crate::error::ErrorCode;
use crate::ring::{Accusation, Members};
use crate::session::SubscribeRequest;
use crate::shm::layout::{SLOTS, SUBSCRIBERS, copy_in, restore, restore_bytes, subscriber_state};
use crate::shm::{Region, Word};
use crate::time::Instant;
use crate::wire::hello::ConsumerName;
use crate::wire::subscribe::{InitialSeq, Subscribed};

/// Who is subscribed to one stream.
#[derive(Debug)]
pub struct Roster<R: Region> {
    region: R,
    /// What is said about who has which bit once more, where nobody else can write.
    witness: Option<R>,
    members: Arc<Members<R::Word>>,
    quarantine: Duration,
    seats: [Seat; SUBSCRIBERS],
    shutting_down: bool,
}

/// A subscriber, as the publisher knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Member {
    /// Its bit.
    pub bit: SubscriberBit,
    /// Its process, from the socket's peer credentials (D-9).
    pub pid: u64,
    /// The name it gave; need not be unique (D-16).
    pub name: ConsumerName,
    /// Which frames it wants; the publisher does not depend on it.
    pub mode: SubscriberMode,
    /// The extensions in force on its connection.
    pub features: Features,
}

/// How a subscriber left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Departure {
    /// It promised not to touch the region again (UNSUBSCRIBE, D-10), or its process is gone.
    Clean,
    /// It may still write the region: its bit is quarantined (D-19).
    Abrupt,
}

/// A place for one subscriber.
#[derive(Debug)]
enum Seat {
    Free,
    Taken(Member),
    Quarantined { until: Instant },
}

impl<R: Region> Roster<R> {
    /// Nobody. `quarantine` is how long the bit of somebody who vanished stays unused while its process lives.
    #[must_use]
    pub fn new(region: R, quarantine: Duration) -> Self {
        let (members, seats) = (Members::new(), array::from_fn(|_| Seat::Free));
        Self { region, witness: None, members, quarantine, seats, shutting_down: false }
    }

    /// Says whose each bit is in `witness`, too: the one that the [writer](crate::ring::RingWriter::with_witness) has.
    #[must_use]
    pub fn with_witness(mut self, witness: R) -> Self {
        self.witness = Some(witness);
        self
    }

    /// The membership for the ring's writer.
    #[must_use]
    pub const fn membership(&self) -> &Arc<Members<R::Word>> {
        &self.members
    }

    /// Takes a subscriber in: its bit, and the `initial_seq` from which on it gets every frame that is kept for it.
    ///
    /// Ring the publisher's bell afterwards: a writer that looked in between waits for it, and may sleep by now.
    ///
    /// # Errors
    /// `TOO_MANY` if no bit is free.
    pub fn admit(&mut self, pid: u64, request: SubscribeRequest) -> Result<Subscribed, ErrorCode> {
        let free = self.seats.iter().zip(0..).skip(1).find(|(seat, _)| matches!(seat, Seat::Free));
        let bit = free.and_then(|(_, bit)| SubscriberBit::new(bit)).ok_or(ErrorCode::TOO_MANY)?;
        // Again: anybody may have written there since the bit was freed.
        self.clean(bit);
        let words = self.region.subscriber(bit.get().into());
        self.say_state(bit, subscriber_state::CONNECTING);
        words.consumer_pid.store(pid, Relaxed);
        copy_in(&words.consumer_name, &request.name.to_region_bytes());
        self.members.begin_term(bit);
        // SYNC POINT: seat
        words.term.store(self.term_in_region(bit, request.features), Relaxed);
        if let Some(witness) = &self.witness {
            witness.subscriber(bit.get().into()).term.store(self.members.term(bit), Relaxed);
        }
        let initial_seq = self.members.join(&self.region, bit, request.features);
        self.region.header().subscriber_bitmap.fetch_or(bit.mask(), AcqRel);
        self.say_state(bit, subscriber_state::ACTIVE);
        let SubscribeRequest { name, mode, features, .. } = request;
        *self.seat_mut(bit) = Seat::Taken(Member { bit, pid, name, mode, features });
        Ok(Subscribed { bit, initial_seq: InitialSeq::Full(initial_seq) })
    }

    /// Lets a subscriber go: nobody waits for it any more, and its leases are void. Ring the publisher's bell
    /// afterwards: a writer that sleeps may have waited for it.
    pub fn leave(&mut self, now: Instant, bit: SubscriberBit, departure: Departure) {
        if !matches!(self.seat_mut(bit), Seat::Taken(_)) {
            return;
        }
        // First: a reader whose lease does not count any more must be able to tell.
        self.say_state(bit, subscriber_state::DRAINING);
        self.members.leave(bit);
        self.region.header().subscriber_bitmap.fetch_and(!bit.mask(), AcqRel);
        self.clear_leases(bit);
        match departure {
            Departure::Clean => self.free(bit),
            Departure::Abrupt => *self.seat_mut(bit) = Seat::Quarantined { until: now + self.quarantine },
        }
    }

    /// The process that held `bit` is gone: a quarantine ends at once (D-19).
    pub fn process_gone(&mut self, bit: SubscriberBit) {
        if matches!(self.seat_mut(bit), Seat::Quarantined { .. }) {
            self.free(bit);
        }
    }

    /// Ends the quarantines whose time is over. Returns their bits as a bitmap: the processes behind them need not be
    /// watched any more.
    pub fn handle_timeout(&mut self, now: Instant) -> u64 {
        let mut freed = 0;
        for bit in SubscriberBit::in_bitmap(u64::MAX) {
            if matches!(*self.seat_mut(bit), Seat::Quarantined { until } if until <= now) {
                self.free(bit);
                freed |= bit.mask();
            }
        }
        freed
    }

    /// When the next quarantine ends.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let until = |seat: &Seat| if let Seat::Quarantined { until } = seat { Some(*until) } else { None };
        self.seats.iter().filter_map(until).min()
    }

    /// Whom the ring's writer wants evicted since the last call, and for what.
    pub fn take_accused(&self) -> impl Iterator<Item = (SubscriberBit, Accusation)> {
        [Accusation::Ack, Accusation::Lease]
            .into_iter()
            .flat_map(|of| self.members.take_accused(of).map(move |bit| (bit, of)))
    }

    /// Everybody who is subscribed, by bit.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.seats.iter().filter_map(|seat| if let Seat::Taken(member) = seat { Some(member) } else { None })
    }

    /// Tells readers of the region that no more frames follow (§2 `shutdown_flag`, D-12).
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
        // SYNC POINT: shutdown
        self.region.header().shutdown_flag.store(1, Release);
    }

    /// Writes everything that the roster alone writes again where somebody has written over it, and returns how many
    /// words that were: others may write the region, and who is subscribed must not look evicted for ever (D-23).
    pub fn restore(&self) -> usize {
        let header = self.region.header();
        let mut restored = restore(&header.shutdown_flag, self.shutting_down.into())
            + restore(&header.subscriber_bitmap, self.members.active());
        for (seat, number) in self.seats.iter().zip(0..).skip(1) {
            let words = self.region.subscriber(number);
            let state = match seat {
                Seat::Free => subscriber_state::FREE,
                Seat::Quarantined { .. } => subscriber_state::DRAINING,
                Seat::Taken(Member { bit, pid, name, features, .. }) => {
                    restored += restore(&words.term, self.term_in_region(*bit, *features))
                        + restore(&words.consumer_pid, *pid)
                        + restore_bytes(&words.consumer_name, &name.to_region_bytes());
                    subscriber_state::ACTIVE
                }
            };
            restored += restore(&words.state, state);
        }
        restored
    }

    /// What the region says of the term: reserved, and so 0, for a subscriber that knows nothing of X-2.
    fn term_in_region(&self, bit: SubscriberBit, features: Features) -> u64 {
        if features.contains(Features::LEASE) { self.members.term(bit) } else { 0 }
    }

    fn say_state(&self, bit: SubscriberBit, state: u64) {
        for region in self.witness.iter().chain([&self.region]) {
            // SYNC POINT: seat
            region.subscriber(bit.get().into()).state.store(state, Release);
        }
    }

    /// Makes a bit assignable again.
    fn free(&mut self, bit: SubscriberBit) {
        // Its leases once more: whoever had it may have set one during its quarantine.
        self.clean(bit);
        self.say_state(bit, subscriber_state::FREE);
        *self.seat_mut(bit) = Seat::Free;
    }

    /// Takes everything out of the region that a bit's holder may leave there, or others in its name.
    fn clean(&self, bit: SubscriberBit) {
        self.clear_leases(bit);
        let words = self.region.subscriber(bit.get().into());
        let numbers = [&words.consumer_pid, &words.last_seen_seq, &words.last_ack_ns];
        for word in numbers.into_iter().chain([&words.wake_mode, &words.parked, &words.term]) {
            word.store(0, Relaxed);
        }
        copy_in(&words.consumer_name, &[]);
    }

    fn clear_leases(&self, bit: SubscriberBit) {
        for slot in 0..SLOTS {
            self.region.slot(slot).lease_bitmap.fetch_and(!bit.mask(), AcqRel);
        }
    }

    #[expect(clippy::indexing_slicing, reason = "a bit is at most 31, the array has 32 seats")]
    fn seat_mut(&mut self, bit: SubscriberBit) -> &mut Seat {
        &mut self.seats[usize::from(bit.get())]
    }
}
