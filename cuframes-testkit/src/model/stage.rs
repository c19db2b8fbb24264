//! [`Stage`]: the region, the roster and the subscribers, and what the model knows of them.

mod claims;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cuframes_core::ring::{Frame, FrameLost, Seq};
use cuframes_core::roster::{Departure, Roster};
use cuframes_core::shm::Region;
use cuframes_core::shm::layout::INVALID_SEQ;
use cuframes_core::{Features, Instant, Policy, RingSize, SubscriberBit, SubscriberMode};

use crate::heap::{Bell, HeapReader, HeapRegion, PID, QUARANTINE, reader, request};
use crate::layout::words;

/// Everything around the writer.
#[derive(Debug)]
pub struct Stage {
    region: HeapRegion,
    roster: Roster<HeapRegion>,
    size: u64,
    policy: Policy,
    now: Instant,
    newest: u64,
    /// The frame in each slot, 0 for none.
    slots: Vec<u64>,
    /// Everybody who is subscribed.
    pub subscribers: Vec<Subscriber>,
    /// Everybody whose bit is quarantined, and until when.
    gone: Vec<(Subscriber, Instant)>,
    /// Leased frames of those whose quarantine ended before their process: they hold nothing any more.
    stale: Vec<Frame<HeapRegion, Bell>>,
    publisher_parked: bool,
    trust: Trust,
    /// Subscribers so far.
    joins: u64,
}

/// Which words of the region are what they should be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Trust {
    /// Some that the writer has to believe are not.
    Nothing,
    /// Those that the writer has to believe: leases, acknowledgements, and who sleeps.
    Subscribers,
    /// All.
    All,
}

/// What a subscriber wants.
#[derive(Clone, Copy, Default, Debug)]
pub struct Join {
    /// Every frame in order.
    pub strict: bool,
    /// LEASE.
    pub lease: bool,
    /// WAKE_HINT.
    pub hint: bool,
    /// It takes the publisher for one that knows no extension (D-5).
    pub plain: bool,
    /// NO_ACK.
    pub no_ack: bool,
}

/// A subscriber: the real one, and what the model knows of it.
#[derive(Debug)]
pub struct Subscriber {
    reader: HeapReader,
    /// The frames that were handed out to it in turn and that it holds.
    frames: Vec<Frame<HeapRegion, Bell>>,
    /// Those that it took by their number and holds.
    taken: Vec<Frame<HeapRegion, Bell>>,
    bit: SubscriberBit,
    /// How many had joined before.
    number: u64,
    wants: Join,
    joined: u64,
    last_seen: u64,
    /// The frames that it acknowledged by bit only.
    acked: Vec<u64>,
    cursor: u64,
    /// The newest frame when it last looked.
    looked: u64,
    first: bool,
    parked: bool,
    /// It wrote what it should not have.
    hostile: bool,
}

impl Subscriber {
    /// How many frames it holds.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.frames.len() + self.taken.len()
    }

    fn holds_slot(&self, slot: usize) -> bool {
        self.wants.lease && self.frames.iter().chain(&self.taken).any(|frame| frame.slot() == slot)
    }

    /// Whether it keeps frame `seq` from being overwritten (D-5, X-7).
    fn needs(&self, seq: u64) -> bool {
        let acked_by_bit = self.last_seen == self.joined && self.acked.contains(&seq);
        !self.wants.no_ack && seq > self.joined && self.last_seen < seq && !acked_by_bit
    }
}

impl Stage {
    pub(super) fn new(region: HeapRegion, roster: Roster<HeapRegion>, size: u64, policy: Policy) -> Self {
        Self {
            region,
            roster,
            size,
            policy,
            now: Instant::ZERO,
            newest: 0,
            slots: vec![0; usize::try_from(size).unwrap()],
            subscribers: Vec::new(),
            gone: Vec::new(),
            stale: Vec::new(),
            publisher_parked: false,
            trust: Trust::All,
            joins: 0,
        }
    }

    /// Takes a subscriber in, if a bit is free.
    pub fn join(&mut self, wants: Join) {
        let [lease, hint, no_ack] =
            [wants.lease, wants.hint, wants.no_ack].map(|wants_it| wants_it && !wants.plain);
        let wants = Join { lease, hint, no_ack, ..wants };
        let mode = if wants.strict { SubscriberMode::STRICT_ORDER } else { SubscriberMode::NEWEST_ONLY };
        let features = [(lease, Features::LEASE), (hint, Features::WAKE_HINT), (no_ack, Features::NO_ACK)];
        let features = features.into_iter().filter(|(wants_it, _)| *wants_it);
        let features = features.fold(Features::NONE, |features, (_, feature)| features.union(feature));
        let admitted = self.roster.admit(PID, request(mode, features));
        let taken = self.subscribers.iter().chain(self.gone.iter().map(|(subscriber, _)| subscriber));
        let taken = taken.fold(1, |bits, subscriber| bits | subscriber.bit.mask());
        let free = SubscriberBit::new(u64::from((!taken).trailing_zeros()));
        assert_eq!(admitted.map(|subscribed| subscribed.bit).ok(), free);
        let Ok(subscribed) = admitted else { return };
        let size = RingSize::new(self.size).unwrap();
        self.joins += 1;
        let reader = reader(Arc::clone(&self.region), size, subscribed, mode, features, wants.plain);
        self.subscribers.push(Subscriber {
            reader,
            frames: Vec::new(),
            taken: Vec::new(),
            bit: subscribed.bit,
            number: self.joins,
            wants,
            joined: self.newest,
            last_seen: self.newest,
            acked: Vec::new(),
            cursor: self.newest.saturating_sub(1),
            looked: 0,
            first: true,
            parked: false,
            hostile: false,
        });
    }

    /// Subscriber `number` leaves. After an abrupt departure it may go on with its frames until its bit is free again.
    pub fn leave(&mut self, number: usize, departure: Departure) {
        let Some(subscriber) = self.subscribers.get(number) else { return };
        self.leave_bit(subscriber.bit, departure);
    }

    pub(super) fn leave_bit(&mut self, bit: SubscriberBit, departure: Departure) {
        let number = self.subscribers.iter().position(|subscriber| subscriber.bit == bit).unwrap();
        let subscriber = self.subscribers.swap_remove(number);
        self.roster.leave(self.now, bit, departure);
        match departure {
            Departure::Clean => end(subscriber),
            _ => self.gone.push((subscriber, self.now + QUARANTINE)),
        }
    }

    /// Somebody who left releases a frame, too late.
    pub fn release_late(&mut self, number: usize, frame: usize) {
        let Some((subscriber, _)) = self.gone.get_mut(number) else { return };
        if frame >= subscriber.frames.len() {
            return;
        }
        let frame = subscriber.frames.swap_remove(frame);
        let (seq, slot) = (frame.seq().get(), frame.slot());
        let released = frame.release();
        if self.trust == Trust::All && !subscriber.hostile {
            let expected = match self.slots.get(slot) {
                // It does not look whose bit it is.
                Some(found) if subscriber.wants.plain && *found == seq => Ok(()),
                _ if subscriber.wants.plain => Err(FrameLost::Overwritten),
                _ => Err(FrameLost::Evicted),
            };
            assert_eq!(released, expected);
        }
    }

    /// Somebody who left has not noticed yet, and asks for the next frame.
    pub fn next_late(&mut self, number: usize) {
        if let Some((subscriber, _)) = self.gone.get_mut(number) {
            subscriber.frames.extend(subscriber.reader.next());
        }
    }

    /// A frame whose lease ended long ago is released.
    pub fn release_stale(&mut self) {
        if let Some(frame) = self.stale.pop() {
            // The next holder of the bit may have written that it is still the first one's.
            let bit = frame.seat().bit();
            let is_forged = self.subscribers.iter().any(|s| s.hostile && s.bit == bit);
            let released = frame.release();
            assert!(self.trust != Trust::All || is_forged || released == Err(FrameLost::Evicted));
        }
    }

    /// The process of somebody who left has ended.
    pub fn process_gone(&mut self, number: usize) {
        if number < self.gone.len() {
            let (subscriber, _) = self.gone.swap_remove(number);
            let bit = subscriber.bit;
            end(subscriber);
            self.roster.process_gone(bit);
        }
    }

    /// Time goes on.
    pub fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        let (over, still): (Vec<_>, Vec<_>) = self.gone.drain(..).partition(|(_, until)| *until <= self.now);
        self.gone = still;
        for (subscriber, _) in over {
            // Who lives longer than its quarantine and still writes is not provided for (D-19), but with LEASE it can tell.
            if subscriber.wants.lease && !subscriber.hostile {
                self.stale.extend(subscriber.frames.into_iter().chain(subscriber.taken));
            } else {
                end(subscriber);
            }
        }
        self.roster.handle_timeout(self.now);
        assert_eq!(self.roster.poll_timeout(), self.gone.iter().map(|(_, until)| *until).min());
    }

    /// Subscriber `number` asks for the next frame.
    pub fn next(&mut self, number: usize) {
        let Self { subscribers, slots, region, trust, newest, size, .. } = self;
        let Some(subscriber) = subscribers.get_mut(number) else { return };
        let new = slots.iter().enumerate().filter(|(slot, _)| !subscriber.holds_slot(*slot));
        let new = new.map(|(_, seq)| *seq).filter(|seq| *seq > subscriber.cursor);
        let expected = if subscriber.wants.strict { new.min() } else { new.max() };
        let frame = subscriber.reader.next();
        subscriber.looked = *newest;
        if *trust == Trust::All && !subscriber.hostile {
            assert_eq!(frame.as_ref().map(|frame| frame.seq().get()), expected);
        }
        let Some(frame) = frame else { return };
        let (seq, slot) = (frame.seq().get(), frame.slot());
        assert!(seq > subscriber.cursor && slot < slots.len());
        assert_eq!(frame.lost(), if subscriber.first { 0 } else { seq - subscriber.cursor - 1 });
        check_intact(region, &frame, subscriber);
        if *trust == Trust::All {
            let found = (slots.get(slot).copied(), frame.pts_ns().cast_unsigned(), frame.written_bytes());
            assert_eq!(found, (Some(seq), seq, seq));
        }
        let skips = subscriber.cursor + 1 < seq;
        if skips && !subscriber.wants.plain && (subscriber.wants.lease || subscriber.held() == 0) {
            subscriber.last_seen = subscriber.last_seen.max(seq - 1);
        }
        if subscriber.wants.plain {
            let skipped = (0..*size).map(|slot| region.slot(slot.try_into().unwrap()).seq.load(Relaxed));
            let skipped = skipped.filter(|skipped| (subscriber.cursor + 1..seq).contains(skipped));
            subscriber
                .acked
                .extend(skipped.filter(|skipped| is_acked(region, *size, subscriber.joined, *skipped)));
        }
        (subscriber.cursor, subscriber.first) = (seq, false);
        subscriber.frames.push(frame);
    }

    /// Subscriber `number` asks for the frame of the number `back` below the next one; other numbers name none.
    pub fn get(&mut self, number: usize, back: u64) {
        let Self { subscribers, slots, region, trust, newest, .. } = self;
        let Some(subscriber) = subscribers.get_mut(number) else { return };
        let Some(seq) = Seq::new((*newest + 1).wrapping_sub(back)) else { return };
        let slot = slots.iter().position(|found| *found == seq.get());
        let expected = slot.filter(|slot| !subscriber.holds_slot(*slot));
        let frame = subscriber.reader.get(seq);
        if *trust == Trust::All && !subscriber.hostile {
            assert_eq!(frame.as_ref().map(Frame::slot), expected);
        }
        let Some(frame) = frame else { return };
        assert_eq!((frame.seq(), frame.lost()), (seq, 0));
        check_intact(region, &frame, subscriber);
        if *trust == Trust::All {
            let found = (frame.pts_ns().cast_unsigned(), frame.written_bytes());
            assert_eq!(found, (seq.get(), seq.get()));
        }
        subscriber.taken.push(frame);
    }

    /// Subscriber `number` releases one of its frames; those that it took by their number come last.
    pub fn release(&mut self, number: usize, frame: usize) {
        let Some(subscriber) = self.subscribers.get_mut(number) else { return };
        if frame >= subscriber.held() {
            return;
        }
        let taken = frame.checked_sub(subscriber.frames.len());
        let frame = match taken {
            Some(taken) => subscriber.taken.swap_remove(taken),
            None => subscriber.frames.swap_remove(frame),
        };
        let (seq, slot) = (frame.seq().get(), frame.slot());
        let rings = || subscriber.reader.seat().outside().rings();
        let rung = rings();
        let intact = check_intact(&self.region, &frame, subscriber);
        let checked = frame.check();
        let released = frame.release();
        assert_eq!(released, checked);
        if self.trust == Trust::Nothing || subscriber.hostile {
            assert!(intact || released.is_err());
            return;
        }
        assert_eq!(released, if intact { Ok(()) } else { Err(FrameLost::Overwritten) });
        if taken.is_none() {
            if subscriber.wants.plain && is_acked(&self.region, self.size, subscriber.joined, seq) {
                subscriber.acked.push(seq);
            }
            subscriber.last_seen = subscriber.last_seen.max(seq);
        }
        if self.trust == Trust::All {
            assert_eq!(intact, self.slots.get(slot) == Some(&seq));
            assert!(intact || !subscriber.wants.lease, "a leased frame was overwritten");
            assert_eq!(rings() > rung, subscriber.wants.hint && self.publisher_parked);
        }
    }

    /// Subscriber `number` announces that it sleeps, or that it is awake.
    pub fn park(&mut self, number: usize, parks: bool) {
        let Some(subscriber) = self.subscribers.get_mut(number) else { return };
        if !parks {
            subscriber.reader.unpark();
            subscriber.parked = false;
            return;
        }
        subscriber.parked = subscriber.reader.park();
        if self.trust == Trust::All && !subscriber.hostile {
            assert_eq!(subscriber.parked, subscriber.looked == self.newest);
        }
    }

    /// Subscriber `number` writes one of its own words, or its bit of a slot.
    pub fn scribble_own(&mut self, number: usize, word: u8, slot: u8, value: u64) {
        let Some(subscriber) = self.subscribers.get_mut(number) else { return };
        subscriber.hostile = true;
        let own = self.region.subscriber(subscriber.bit.get().into());
        let (slot, mask) = (self.region.slot(slot.into()), subscriber.bit.mask());
        match word % 10 {
            0 => own.last_seen_seq.store(value, Relaxed),
            1 => own.last_ack_ns.store(value, Relaxed),
            2 => own.parked.store(value, Relaxed),
            3 => own.wake_mode.store(value, Relaxed),
            4 => own.term.store(value, Relaxed),
            5 => own.state.store(value, Relaxed),
            6 => drop(slot.lease_bitmap.fetch_or(mask, Relaxed)),
            7 => drop(slot.lease_bitmap.fetch_and(!mask, Relaxed)),
            8 => drop(slot.ack_bitmap.fetch_or(mask, Relaxed)),
            _ => drop(slot.ack_bitmap.fetch_and(!mask, Relaxed)),
        }
    }

    /// Somebody writes any word of the region.
    pub fn scribble_any(&mut self, word: usize, value: u64) {
        let words = words(&self.region);
        let number = word % words.len();
        if let Some((_, word)) = words.get(number) {
            word.store(value, Relaxed);
        }
        self.trust =
            self.trust.min(if claims::is_believed(number) { Trust::Nothing } else { Trust::Subscribers });
    }

    /// Which subscriber has `bit`, by their order.
    pub(super) fn holder(&self, bit: u8) -> u64 {
        let holder = self.subscribers.iter().find(|subscriber| subscriber.bit.get() == bit);
        holder.map_or(u64::MAX, |subscriber| subscriber.number)
    }

    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// The bits of everybody whom the writer wants evicted.
    pub(super) fn take_accused(&self) -> u64 {
        self.roster.take_accused().fold(0, |bits, (bit, _)| bits | bit.mask())
    }

    /// The bits of everybody who is subscribed; the roster and the writer agree.
    fn active(&self) -> u64 {
        let active = self.subscribers.iter().fold(0, |bits, s| bits | s.bit.mask());
        assert_eq!(self.roster.members().fold(0, |bits, member| bits | member.bit.mask()), active);
        assert_eq!(self.roster.membership().active(), active);
        active
    }

    fn slot(&self, seq: u64) -> usize {
        usize::try_from(seq % self.size).unwrap()
    }
}

/// The subscriber's process ends, or it promised to leave the region alone: what it still holds is nothing.
fn end(subscriber: Subscriber) {
    subscriber.reader.seat().detach();
    for frame in subscriber.frames.into_iter().chain(subscriber.taken) {
        assert_eq!(frame.release(), Err(FrameLost::Evicted));
    }
}

/// A frame is called intact while its slot has its number; a leased one also while a writer that wanted the slot puts the
/// number back.
fn check_intact(region: &HeapRegion, frame: &Frame<HeapRegion, Bell>, subscriber: &Subscriber) -> bool {
    let intact = frame.is_intact();
    let expected = match region.slot(frame.slot()).seq.load(Relaxed) {
        INVALID_SEQ if subscriber.wants.lease => subscriber.reader.seat().is_held(),
        found => found == frame.seq().get(),
    };
    assert_eq!(intact, expected);
    intact
}

/// Whether an acknowledgement of `seq` by bit reaches the frame, and not one from before the subscriber joined (D-5).
fn is_acked(region: &HeapRegion, size: u64, joined: u64, seq: u64) -> bool {
    let slot = usize::try_from(seq % size).unwrap();
    seq > joined && region.slot(slot).seq.load(Relaxed) == seq
}
