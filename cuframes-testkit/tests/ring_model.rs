//! Random operations on the ring against a model of §5 that knows no atomics.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failure ends the test")]

use cuframes_core::ring::{Frame, FrameLost};
use cuframes_core::roster::Departure;
use cuframes_core::{Features, Instant, Policy, SubscriberMode};
use cuframes_testkit::heap::{Bell, HeapReader, HeapRegion, HeapRing};
use cuframes_testkit::strategies::config;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Publish,
    ClaimAndDrop,
    Join { strict: bool, lease: bool },
    Leave(usize),
    Next(usize),
    Release { reader: usize, frame: usize },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => Just(Op::Publish),
        1 => Just(Op::ClaimAndDrop),
        1 => any::<(bool, bool)>().prop_map(|(strict, lease)| Op::Join { strict, lease }),
        1 => (0..4_usize).prop_map(Op::Leave),
        6 => (0..4_usize).prop_map(Op::Next),
        4 => (0..4_usize, 0..4_usize).prop_map(|(reader, frame)| Op::Release { reader, frame }),
    ]
}

/// A subscriber: the real one, and what the model knows of it.
struct Subscriber {
    reader: HeapReader,
    frames: Vec<Frame<HeapRegion, Bell>>,
    bit: u64,
    strict: bool,
    lease: bool,
    joined: u64,
    last_seen: u64,
    cursor: u64,
    first: bool,
}

impl Subscriber {
    fn holds_slot(&self, slot: usize) -> bool {
        self.lease && self.frames.iter().any(|frame| frame.slot() == slot)
    }
}

struct Model {
    size: u64,
    policy: Policy,
    newest: u64,
    /// The frame in each slot, 0 for none.
    slots: Vec<u64>,
}

impl Model {
    fn slot(&self, seq: u64) -> usize {
        usize::try_from(seq % self.size).unwrap()
    }

    /// The number that a claim gets, or the bits that are in its way: acknowledgements, leases.
    fn claim(&self, subscribers: &[Subscriber]) -> Result<u64, (u64, u64)> {
        let bits = |hinders: &dyn Fn(&Subscriber) -> bool| {
            subscribers.iter().filter(|s| hinders(s)).fold(0, |bits, s| bits | 1 << s.bit)
        };
        if self.policy == Policy::STRICT_WAIT {
            let slot = self.slot(self.newest + 1);
            let old = self.slots[slot];
            let acks = bits(&|s| old > s.joined && s.last_seen < old);
            let leases = if acks == 0 { bits(&|s| s.holds_slot(slot)) } else { 0 };
            return if acks | leases == 0 { Ok(self.newest + 1) } else { Err((acks, leases)) };
        }
        let free = |seq: &u64| subscribers.iter().all(|s| !s.holds_slot(self.slot(*seq)));
        let all_leases = bits(&|s| s.lease && !s.frames.is_empty());
        (self.newest + 1..=self.newest + self.size).find(free).ok_or((0, all_leases))
    }

    /// The number and the gap that a reader gets.
    fn next(&self, subscriber: &Subscriber) -> Option<(u64, u64)> {
        let new = self.slots.iter().copied().filter(|seq| *seq > subscriber.cursor);
        let seq = if subscriber.strict { new.min() } else { new.max() }?;
        let lost = if subscriber.first { 0 } else { seq - subscriber.cursor - 1 };
        Some((seq, lost))
    }
}

fn run(size: u64, policy: Policy, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut ring = HeapRing::new(size, policy);
    let mut model = Model { size, policy, newest: 0, slots: vec![0; usize::try_from(size).unwrap()] };
    let mut subscribers: Vec<Subscriber> = Vec::new();
    for op in ops {
        match op {
            Op::Publish | Op::ClaimAndDrop
                if {
                    let stalled = ring
                        .writer
                        .stalled()
                        .map(|stalled| (stalled.waiting_for_acks, stalled.waiting_for_leases));
                    prop_assert_eq!(stalled.is_some(), model.claim(&subscribers).is_err());
                    false
                } => {}
            Op::Publish | Op::ClaimAndDrop => match (ring.writer.claim(), model.claim(&subscribers)) {
                (Ok(claim), Ok(expected)) => {
                    prop_assert_eq!(claim.seq().get(), expected);
                    let slot = model.slot(expected);
                    prop_assert_eq!(claim.slot(), slot);
                    model.slots[slot] = 0;
                    if matches!(op, Op::Publish) {
                        let _ = claim.commit(expected.cast_signed(), expected);
                        (model.slots[slot], model.newest) = (expected, expected);
                    }
                }
                (Err(stalled), Err(expected)) => {
                    prop_assert_eq!((stalled.waiting_for_acks, stalled.waiting_for_leases), expected);
                }
                (claimed, expected) => prop_assert!(false, "{claimed:?}, expected {expected:?}"),
            },
            Op::Join { strict, lease } if subscribers.len() < 4 => {
                let mode = if strict { SubscriberMode::STRICT_ORDER } else { SubscriberMode::NEWEST_ONLY };
                let reader = ring.join(mode, if lease { Features::LEASE } else { Features::NONE });
                let (bit, joined) = (reader.seat().bit().get().into(), model.newest);
                subscribers.push(Subscriber {
                    reader,
                    frames: Vec::new(),
                    bit,
                    strict,
                    lease,
                    joined,
                    last_seen: joined,
                    cursor: joined.saturating_sub(1),
                    first: true,
                });
            }
            Op::Leave(number) if number < subscribers.len() => {
                let Subscriber { reader, frames, .. } = subscribers.swap_remove(number);
                ring.roster.leave(Instant::ZERO, reader.seat().bit(), Departure::Clean);
                for frame in frames {
                    prop_assert_eq!(frame.release(), Err(FrameLost::Evicted));
                }
            }
            Op::Next(number) if number < subscribers.len() => {
                let expected = model.next(&subscribers[number]);
                let subscriber = &mut subscribers[number];
                let frame = subscriber.reader.next();
                prop_assert_eq!(frame.as_ref().map(|frame| (frame.seq().get(), frame.lost())), expected);
                if let Some(frame) = frame {
                    let seq = frame.seq().get();
                    prop_assert_eq!((frame.pts_ns().cast_unsigned(), frame.written_bytes()), (seq, seq));
                    (subscriber.cursor, subscriber.first) = (seq, false);
                    subscriber.frames.push(frame);
                }
            }
            Op::Release { reader, frame } => {
                let Some(subscriber) = subscribers.get_mut(reader).filter(|s| frame < s.frames.len()) else {
                    continue;
                };
                let frame = subscriber.frames.swap_remove(frame);
                let (seq, slot) = (frame.seq().get(), frame.slot());
                let intact = model.slots[slot] == seq;
                prop_assert!(intact || !subscriber.lease, "a leased frame was overwritten");
                prop_assert_eq!(frame.is_intact(), intact);
                prop_assert_eq!(frame.release(), if intact { Ok(()) } else { Err(FrameLost::Overwritten) });
                subscriber.last_seen = subscriber.last_seen.max(seq);
            }
            _ => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn the_ring_does_what_the_model_does(
        size in 1..=5_u64, strict_wait: bool, ops in prop::collection::vec(op(), 1..120),
    ) {
        run(size, if strict_wait { Policy::STRICT_WAIT } else { Policy::DROP_OLDEST }, ops)?;
    }
}
