//! The steps that models do without, to show that they would notice: each is one [`Weakening`] of the shipped code.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use cuframes_core::shm::layout::{INVALID_SEQ, subscriber_state};

use super::word::{Access, Field, Step, Weakening};

/// The writer leaves the slot valid while it writes there: the order of the document before D-4.
#[derive(Debug)]
pub struct SlotStaysValid;

impl Weakening for SlotStaysValid {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        ((step.0, value) != (Field::Seq, INVALID_SEQ)).then_some((value, order))
    }
}

/// The writer has no fence between invalidating a slot and writing there.
#[derive(Debug)]
pub struct NoFenceAfterInvalid;

impl Weakening for NoFenceAfterInvalid {
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        (after != (Field::Seq, Access::Store) && order != Release).then_some(order)
    }
}

/// The reader has no fence between a frame's words and its second look at the slot.
#[derive(Debug)]
pub struct NoFenceBeforeSecondLook;

impl Weakening for NoFenceBeforeSecondLook {
    fn fence(_: Step, order: Ordering) -> Option<Ordering> {
        (order != Acquire).then_some(order)
    }
}

/// X-2 with a weaker fence in the writer: between the invalid number and its look at the leases.
#[derive(Debug)]
pub struct WeakFenceAfterInvalid;

impl Weakening for WeakFenceAfterInvalid {
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        Some(if after == (Field::Seq, Access::Store) { AcqRel } else { order })
    }
}

/// X-2 with a weaker fence in the reader: between the lease and its look at the slot.
#[derive(Debug)]
pub struct WeakFenceAfterLease;

impl Weakening for WeakFenceAfterLease {
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        Some(if after == (Field::LeaseBitmap, Access::SetBits) { AcqRel } else { order })
    }
}

/// A reader that finds a slot invalid does not wait until it has a number again. Otherwise as `K`.
#[derive(Debug)]
pub struct OneLook<K>(PhantomData<K>);

impl<K: Weakening> Weakening for OneLook<K> {
    const LOOKS: u32 = 1;

    fn pause() {}

    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        K::write(step, value, order)
    }

    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        K::fence(after, order)
    }
}

/// The reader does not remember in which slots it holds frames.
#[derive(Debug)]
pub struct ForgetsLeases;

impl Weakening for ForgetsLeases {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        (step != (Field::Seat, Access::SetBits)).then_some((value, order))
    }
}

/// The region does not say who has a bit.
#[derive(Debug)]
pub struct NoState;

impl Weakening for NoState {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        (step.0 != Field::State).then_some((value, order))
    }
}

/// The region does not say that a subscriber has left.
#[derive(Debug)]
pub struct LeavesUnsaid;

impl Weakening for LeavesUnsaid {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        ((step.0, value) != (Field::State, subscriber_state::DRAINING)).then_some((value, order))
    }
}

/// It may be seen that a bit has a holder before its term is.
#[derive(Debug)]
pub struct StateBeforeTerm;

impl Weakening for StateBeforeTerm {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        Some((value, if step.0 == Field::State { Relaxed } else { order }))
    }

    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        // The roster's between the two, which is there for who joins.
        NoFenceInJoin::fence(after, order)
    }
}

/// A frame's number may be seen before the frame.
#[derive(Debug)]
pub struct NumberBeforeFrame;

impl Weakening for NumberBeforeFrame {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        Some((value, if step.0 == Field::GlobalSeq { Relaxed } else { order }))
    }
}

/// X-3 without the subscriber's fence between `parked` and its last look.
#[derive(Debug)]
pub struct NoFenceAfterParked;

impl Weakening for NoFenceAfterParked {
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        (after != (Field::Parked, Access::Store)).then_some(order)
    }
}

/// X-3 and D-5 without the writer's fence after a publication. The last thing it does before is to tell the roster.
#[derive(Debug)]
pub struct NoFenceAfterPublication;

impl Weakening for NoFenceAfterPublication {
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        (after != (Field::Own, Access::Store)).then_some(order)
    }
}

/// X-3 without the writer's fence between `publisher_parked` and its last look.
#[derive(Debug)]
pub struct NoFenceAfterPublisherParked;

impl Weakening for NoFenceAfterPublisherParked {
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        (after != (Field::PublisherParked, Access::Store)).then_some(order)
    }
}

/// X-3 without the subscriber's fence between an acknowledgement or a release and its look at `publisher_parked`.
#[derive(Debug)]
pub struct NoFenceAfterRelease;

impl Weakening for NoFenceAfterRelease {
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        // Under a lease the last word written is our own note that it was given back, without one the stamp of the
        // acknowledgement, which is not modelled.
        let released = matches!(after, (Field::Seat, Access::ClearBits) | (Field::Other, _));
        (!released).then_some(order)
    }
}

/// A subscriber does not look at its word before it looks which acknowledgement it has to say.
#[derive(Debug)]
pub struct NoFenceInAck;

impl Weakening for NoFenceInAck {
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        ((after.0, order) != (Field::LastSeenSeq, Acquire)).then_some(order)
    }
}

/// An acknowledgement that names the frame after the one that was read.
#[derive(Debug)]
pub struct AckOfNextFrame;

impl Weakening for AckOfNextFrame {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        // What a seat notes, and then says to the publisher.
        Some((if step == (Field::Seat, Access::Exchange) { value + 1 } else { value }, order))
    }
}

/// An acknowledgement that does not name its frame: only its bit is set.
#[derive(Debug)]
pub struct AckWithoutNumber;

impl Weakening for AckWithoutNumber {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        // The roster's store is a relaxed one.
        ((step.0, order) != (Field::LastSeenSeq, Release)).then_some((value, order))
    }
}

/// D-5 without the roster's fence between the bit that is active now and the newest number.
#[derive(Debug)]
pub struct NoFenceInJoin;

impl Weakening for NoFenceInJoin {
    fn fence(after: Step, order: Ordering) -> Option<Ordering> {
        (after != (Field::Own, Access::SetBits)).then_some(order)
    }
}

/// Who joins does not become a member.
#[derive(Debug)]
pub struct JoinsWithoutEffect;

impl Weakening for JoinsWithoutEffect {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        (step != (Field::Own, Access::SetBits)).then_some((value, order))
    }
}

/// Who leaves stays a member.
#[derive(Debug)]
pub struct LeavesWithoutEffect;

impl Weakening for LeavesWithoutEffect {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        (step != (Field::Own, Access::ClearBits)).then_some((value, order))
    }
}

/// While somebody joins on a bit of whose last holder no frame was required, none is required of it either.
#[derive(Debug)]
pub struct ExcusedWhileItJoins;

impl Weakening for ExcusedWhileItJoins {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        // And terms, which are only for accusations.
        ((step, order) != ((Field::Own, Access::Store), Relaxed)).then_some((value, order))
    }
}

/// A bit's second holder counts as its first.
#[derive(Debug)]
pub struct SameTerm;

impl Weakening for SameTerm {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        // Of what is stored there only the second term is 2 in a model that publishes one frame.
        ((step, value) != ((Field::Own, Access::Store), 2)).then_some((value, order))
    }
}

/// The shutdown flag may be seen before the last frames.
#[derive(Debug)]
pub struct FlagBeforeFrames;

impl Weakening for FlagBeforeFrames {
    fn write(step: Step, value: u64, order: Ordering) -> Option<(u64, Ordering)> {
        Some((value, if step.0 == Field::ShutdownFlag { Relaxed } else { order }))
    }
}
