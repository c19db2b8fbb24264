//! A region whose publisher is hostile: its header (§2), its slots, and a reader of it (D-23).

use std::collections::VecDeque;
use std::sync::Arc;

use cuframes_core::error::Place;
use cuframes_core::ring::{Frame, RingReader, Seat};
use cuframes_core::shm::StreamHeader;
use cuframes_core::shm::header::SlotMemory;
use cuframes_core::shm::layout::{INVALID_SEQ, MAGIC, SLOTS, subscriber_state};
use cuframes_core::wire::PROTO_VERSION;
use cuframes_core::wire::subscribe::InitialSeq;
use cuframes_core::{Features, FrameMeta, RingSize, SubscriberBit, SubscriberMode};

use super::{Script, check_geometry};
use crate::fickle::{FickleWord, Seen, Write, fickle_region, while_fickle};
use crate::heap::{Bell, HeapReader, HeapRegion};
use crate::layout::words;
use crate::vectors::vector;

/// Reads `data` as a subscriber, what it does, what a hostile publisher writes in between and meanwhile, and the region
/// that it all begins with. The header is refused or can be used, and the reader does no more than it may.
pub fn region_header(data: &[u8]) {
    let mut script = Script(data);
    let kind = script.byte();
    let seat = [(); 3].map(|()| script.byte());
    let initial_seq = script.word();
    let steps = script.byte();
    let mut steps = Script(script.take(steps));
    let region = region(kind, &mut script);
    let header = check_header(&region);
    // A reader goes by what HELLO_RESP says, which a region may contradict.
    let ring_size = header.map(|header| header.ring_size).or_else(|| RingSize::new(u64::from(1 + kind / 16)));
    let ring_size = ring_size.unwrap();
    let mut peer = Peer::new(region, ring_size, seat, initial_seq);
    while let Some(choice) = steps.next() {
        peer.step(choice, &mut steps);
    }
}

/// The golden region with some words changed, or a region as it is in memory, zero where the script ends.
fn region(kind: u8, script: &mut Script<'_>) -> HeapRegion<FickleWord> {
    let region = HeapRegion::new(fickle_region());
    let words = words_of(&region);
    let load = |bytes: &[u8]| {
        for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
            word.set(chunk.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)));
        }
    };
    if kind.is_multiple_of(2) {
        load(script.0);
        return region;
    }
    load(&vector("region_empty"));
    while !script.0.is_empty() {
        set_any(&words, script);
    }
    region
}

/// Changes the word that the script names.
fn set_any(words: &[&FickleWord], script: &mut Script<'_>) {
    let index = usize::from(script.u16()) % words.len();
    words.get(index).unwrap().set(script.word());
}

/// A header is accepted if and only if it can be used, and then it is what the region says.
fn check_header(region: &HeapRegion<FickleWord>) -> Option<StreamHeader> {
    let raw = &region.header;
    let mut meta = [0; 64];
    for (bytes, word) in meta.chunks_mut(8).zip(&raw.meta) {
        bytes.copy_from_slice(&word.value().to_le_bytes());
    }
    let meta = FrameMeta::from_bytes(&meta);
    let slots = raw.ring_size.value();
    let is_usable = raw.magic_version.value() == u64::from(PROTO_VERSION) << 32 | u64::from(MAGIC)
        && (1..=16).contains(&slots)
        && meta.validate().is_ok();
    for index in 0..SLOTS {
        let memory = SlotMemory::read(region, index);
        let words = region.slots.get(index).unwrap();
        assert_eq!(memory.offset, words.mem_offset.value());
        assert!(
            memory
                .handle
                .0
                .chunks(8)
                .zip(&words.mem_handle)
                .all(|(bytes, word)| bytes == word.value().to_le_bytes())
        );
    }
    match StreamHeader::read(region) {
        Ok(header) => {
            assert!(is_usable);
            check_geometry(&header.meta);
            assert_eq!((u64::from(header.ring_size.get()), header.meta), (slots, meta));
            assert_eq!((header.policy.0, header.epoch), (raw.policy.value(), raw.epoch.value()));
            let copy = fickle_region();
            header.write(&copy);
            assert_eq!(StreamHeader::read(&copy), Ok(header));
            Some(header)
        }
        Err(violation) => {
            assert!(!is_usable && violation.place == Place::Region && !violation.to_string().is_empty());
            None
        }
    }
}

fn words_of(region: &HeapRegion<FickleWord>) -> Vec<&FickleWord> {
    words(region).into_iter().map(|(_, word)| word).collect()
}

/// A subscriber of a hostile publisher.
struct Peer {
    region: HeapRegion<FickleWord>,
    ring_size: RingSize,
    reader: HeapReader<FickleWord>,
    plain: bool,
    initial_seq: u64,
    term: u64,
    detached: bool,
    /// What it wrote to `wake_mode` when it attached.
    wake_mode: u64,
    /// The newest frame that was released.
    done: u64,
    /// The last frame that was handed out.
    cursor: Option<u64>,
    frames: Vec<Frame<HeapRegion<FickleWord>, Bell>>,
}

impl Peer {
    fn new(region: HeapRegion<FickleWord>, ring_size: RingSize, seat: [u8; 3], initial_seq: u64) -> Self {
        let [bit, features, mode] = seat;
        let bit = SubscriberBit::new(u64::from(1 + bit % SubscriberBit::MAX)).unwrap();
        let (plain, short, mode) = (mode & 2 != 0, mode & 4 != 0, SubscriberMode(u32::from(mode & 1)));
        let initial_seq = match u32::try_from(initial_seq) {
            Ok(low) if short => InitialSeq::Low(low),
            _ => InitialSeq::Full(initial_seq),
        };
        let global_seq = region.header.global_seq.value();
        let initial_seq = initial_seq.resolve(global_seq);
        let term = region.subscribers.get(usize::from(bit.get())).unwrap().term.value();
        let features = Features(u32::from(features));
        let wake_mode = features.contains(Features::WAKE_HINT).into();
        let seat =
            Seat::new(Arc::clone(&region), Bell::default(), ring_size, bit, initial_seq, features, plain);
        let reader = RingReader::new(seat, mode);
        Self {
            region,
            ring_size,
            reader,
            plain,
            initial_seq,
            term,
            detached: false,
            wake_mode,
            done: initial_seq,
            cursor: None,
            frames: Vec::new(),
        }
    }

    /// Does one thing, as the publisher or as the subscriber.
    fn step(&mut self, choice: u8, script: &mut Script<'_>) {
        match choice % 8 {
            0 => {
                // As a publisher would: the next number, in its slot.
                let seq = self.region.header.global_seq.value().wrapping_add(1);
                self.publish(seq, seq % u64::from(self.ring_size.get()));
            }
            1 => self.publish(script.word(), u64::from(choice / 16)),
            2 => set_any(&words_of(&self.region), script),
            3 | 4 => self.next(&changes(choice, script)),
            5 if !self.frames.is_empty() => {
                let frame = self.frames.swap_remove(usize::from(script.byte()) % self.frames.len());
                let changes = changes(choice, script);
                let (intact, held) = (self.is_intact(&frame), self.is_held());
                self.done = self.done.max(frame.seq().get());
                let released = self.act(&changes, |_| frame.release());
                if changes.is_empty() {
                    assert_eq!(released.is_ok(), intact && held);
                }
            }
            6 => {
                let changes = changes(choice, script);
                for number in 0..self.frames.len() {
                    let intact = self.act(&changes, |peer| peer.frames.get(number).map(Frame::is_intact));
                    let expected = self.frames.get(number).map(|frame| self.is_intact(frame));
                    assert!(!changes.is_empty() || intact == expected);
                }
            }
            7 if choice == u8::MAX => {
                self.reader.seat().detach();
                self.detached = true;
            }
            7 => {
                let changes = changes(choice, script);
                self.act(&changes, |peer| (peer.reader.park(), peer.reader.is_shutting_down()));
                self.act(&changes, |peer| peer.reader.unpark());
            }
            _ => {}
        }
    }

    fn publish(&self, seq: u64, slot: u64) {
        let slot = self.region.slots.get(usize::try_from(slot).unwrap() % SLOTS).unwrap();
        slot.pts_ns.set(seq);
        slot.written_bytes.set(seq);
        slot.seq.set(seq);
        self.region.header.global_seq.set(seq);
    }

    fn next(&mut self, changes: &VecDeque<(u8, u64)>) {
        if self.frames.len() == MAX_FRAMES {
            return;
        }
        let skips = |peer: &mut Self, frame: &Option<_>| {
            if let Some(frame) = frame {
                peer.skip_to(frame);
            }
        };
        let Some(frame) = self.act_and(changes, |peer| peer.reader.next(), skips) else { return };
        let (seq, slot) = (frame.seq().get(), frame.slot());
        assert!(slot < usize::from(self.ring_size.get()), "slot {slot} is outside the ring");
        assert!(seq != INVALID_SEQ && self.cursor.is_none_or(|cursor| seq > cursor), "{seq} again");
        assert_eq!(frame.lost(), self.cursor.map_or(0, |cursor| seq - cursor - 1));
        if changes.is_empty() {
            let words = self.region.slots.get(slot).unwrap();
            let found = (words.seq.value(), words.pts_ns.value(), words.written_bytes.value());
            assert_eq!(found, (seq, frame.pts_ns().cast_unsigned(), frame.written_bytes()));
        }
        assert!(!self.holds(slot), "two frames with one lease");
        self.cursor = Some(seq);
        self.frames.push(frame);
    }

    /// With this frame it is done with those that it skips, unless it still uses another without a lease (D-5).
    fn skip_to(&mut self, frame: &Frame<HeapRegion<FickleWord>, Bell>) {
        let seq = frame.seq().get();
        let first = 1 + self.cursor.unwrap_or_else(|| self.initial_seq.saturating_sub(1));
        if first < seq && !self.plain && (self.reader.seat().leases() || self.frames.is_empty()) {
            self.done = self.done.max(seq - 1);
        }
    }

    /// Lets the subscriber do something while the publisher makes `changes`. It ends, and writes only what it may.
    fn act<R>(&mut self, changes: &VecDeque<(u8, u64)>, action: impl FnOnce(&mut Self) -> R) -> R {
        self.act_and(changes, action, |_, _| {})
    }

    /// As [`act`](Self::act), but what it may write is known only when it is seen what came of it.
    fn act_and<R>(
        &mut self,
        changes: &VecDeque<(u8, u64)>,
        action: impl FnOnce(&mut Self) -> R,
        learn: impl FnOnce(&mut Self, &R),
    ) -> R {
        let Seen { result, accesses, writes } = while_fickle(changes.clone(), || action(self));
        learn(self, &result);
        assert!(accesses <= MAX_ACCESSES + changes.len(), "it looks at the region {accesses} times");
        for write in writes {
            assert!(self.may_make(write), "{write:?} is not for a subscriber to make");
        }
        result
    }

    /// Whether a subscriber may make this change: to its own words, and to its own bits of the slots in use.
    fn may_make(&self, Write { index, before, after }: Write) -> bool {
        let bit = self.reader.seat().bit();
        let own = FIRST_SUBSCRIBER + usize::from(bit.get()) * SUBSCRIBER_WORDS;
        match index.checked_sub(own) {
            Some(LAST_SEEN_SEQ) => return after == self.done,
            Some(LAST_ACK_NS | PARKED) => return true,
            Some(WAKE_MODE) => return after == self.wake_mode,
            _ => {}
        }
        let Some(index) = index.checked_sub(FIRST_SLOT) else { return false };
        let (slot, word) = (index / SLOT_WORDS, index % SLOT_WORDS);
        slot < usize::from(self.ring_size.get())
            && before ^ after == bit.mask()
            && match word {
                LEASE_BITMAP => self.reader.seat().leases() && !self.holds(slot),
                ACK_BITMAP => self.plain,
                _ => false,
            }
    }

    /// Whether a frame in `slot` is held under a lease.
    fn holds(&self, slot: usize) -> bool {
        self.reader.seat().leases() && self.frames.iter().any(|frame| frame.slot() == slot)
    }

    /// Whether the frame is intact as the region stands: a writer that wants a leased slot may be putting its number back.
    fn is_intact(&self, frame: &Frame<HeapRegion<FickleWord>, Bell>) -> bool {
        match self.region.slots.get(frame.slot()).unwrap().seq.value() {
            INVALID_SEQ if self.reader.seat().leases() => self.is_held(),
            seq => seq == frame.seq().get(),
        }
    }

    fn is_held(&self) -> bool {
        let words = self.region.subscribers.get(usize::from(self.reader.seat().bit().get())).unwrap();
        let state = (words.state.value(), words.term.value());
        !self.detached && (self.plain || state == (subscriber_state::ACTIVE, self.term))
    }
}

/// What the publisher writes while the subscriber acts.
fn changes(choice: u8, script: &mut Script<'_>) -> VecDeque<(u8, u64)> {
    (0..choice / 32).map(|_| (script.byte() % 64, script.word())).collect()
}

/// More than any one action needs on words of which one look is enough.
const MAX_ACCESSES: usize = 256;
const MAX_FRAMES: usize = 20;

/// Where the words lie that a subscriber may write, counted in words (§2).
const FIRST_SLOT: usize = 0x100 / 8;
const SLOT_WORDS: usize = 0xC0 / 8;
const ACK_BITMAP: usize = 0x10 / 8;
const LEASE_BITMAP: usize = 0x80 / 8;
const FIRST_SUBSCRIBER: usize = 0xD00 / 8;
const SUBSCRIBER_WORDS: usize = 0x80 / 8;
const LAST_SEEN_SEQ: usize = 0x10 / 8;
const LAST_ACK_NS: usize = 0x18 / 8;
const WAKE_MODE: usize = 0x40 / 8;
const PARKED: usize = 0x48 / 8;
