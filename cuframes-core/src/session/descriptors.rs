//! [`Descriptors`]: which descriptors may go over a connection. Each may once, if the features in force allow it (X-1,
//!

use crate::config::{Features, RingSize};
use crate::error::{Problem, Violation};
use crate::wire::control::EventFd;
use crate::wire::{FdPurpose, MessageType};

/// What went over a connection so far. The default is that of a connection whose features are not known yet.
#[derive(Default, Debug)]
pub(super) struct Descriptors {
    features: Features,
    ring_size: u32,
    /// A bit for each descriptor, by purpose and index.
    seen: u128,
}

impl Descriptors {
    /// The most descriptors that can go over one connection: one per slot, and one of each other purpose.
    pub(super) const MAX: usize = 21;

    pub(super) fn new(features: Features, ring_size: RingSize) -> Self {
        Self { features, ring_size: ring_size.get().into(), seen: 0 }
    }

    /// Counts a descriptor in; the error is what a receiver would say of it.
    pub(super) fn admit(&mut self, EventFd { purpose, index, count }: EventFd) -> Result<(), Violation> {
        let fault = |field, value: u32| {
            Err(Violation::new(MessageType::EVENT_FD, field, Problem::Value { value: value.into() }))
        };
        let (needed, counted) = match purpose {
            FdPurpose::WAKE_UP => (Features::NONE, None),
            FdPurpose::PUBLISHER_WAKE_UP => (Features::WAKE_HINT, None),
            FdPurpose::REGION | FdPurpose::HOST_POOL => (Features::FD_PASSING, Some(1)),
            FdPurpose::CUDA_VMM => (Features::FD_PASSING.union(Features::CUDA_VMM), Some(self.ring_size)),
            FdPurpose::WITNESS => (Features::FD_PASSING.union(Features::WITNESS), Some(1)),
            _ => return fault("fd_purpose", purpose.0),
        };
        if !self.features.contains(needed) {
            return fault("fd_purpose", purpose.0);
        }
        let index = match counted {
            Some(expected) if count != expected => return fault("count", count),
            Some(_) if index >= count => return fault("index", index),
            Some(_) => index,
            // An eventfd has neither index nor count: these bytes are reserved, and ignored (§3.7).
            None => 0,
        };
        let bit = 1 << (purpose.0 * u32::from(RingSize::MAX) + index);
        if self.seen & bit != 0 {
            return fault("index", index);
        }
        self.seen |= bit;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Features = Features(u32::MAX);

    fn of(features: Features) -> Descriptors {
        Descriptors::new(features, RingSize::new(16).unwrap())
    }

    fn vmm(index: u32) -> EventFd {
        EventFd { purpose: FdPurpose::CUDA_VMM, index, count: 16 }
    }

    #[test]
    fn each_descriptor_may_come_once() {
        let mut descriptors = of(ALL);
        let others = [1, 2, 3, 5, 6].map(|purpose| EventFd::single(FdPurpose(purpose)));
        let all = || others.into_iter().chain((0..16).map(vmm));
        assert_eq!(all().count(), Descriptors::MAX);
        assert!(all().all(|message| descriptors.admit(message).is_ok()));
        assert!(all().all(|message| descriptors.admit(message).is_err()));
    }

    #[test]
    fn a_purpose_needs_its_features() {
        let cases = [
            (FdPurpose::REGION, Features::FD_PASSING),
            (FdPurpose::HOST_POOL, Features::FD_PASSING),
            (FdPurpose::PUBLISHER_WAKE_UP, Features::WAKE_HINT),
            (FdPurpose::WITNESS, Features::FD_PASSING.union(Features::WITNESS)),
        ];
        for (purpose, needed) in cases {
            assert!(of(needed).admit(EventFd::single(purpose)).is_ok());
            assert_eq!(
                of(Features(!needed.0)).admit(EventFd::single(purpose)).unwrap_err().field,
                "fd_purpose"
            );
        }
        assert!(of(Features::FD_PASSING.union(Features::CUDA_VMM)).admit(vmm(0)).is_ok());
        assert!(of(Features::CUDA_VMM).admit(vmm(0)).is_err());
        assert!(of(Features::FD_PASSING).admit(vmm(0)).is_err());
        assert!(of(ALL).admit(EventFd::single(FdPurpose(7))).is_err());
    }

    #[test]
    fn an_index_is_below_its_count_and_an_eventfd_has_neither() {
        let field = |purpose, index, count| {
            of(ALL).admit(EventFd { purpose, index, count }).map_err(|violation| violation.field)
        };
        assert_eq!(field(FdPurpose::CUDA_VMM, 0, 8), Err("count"));
        assert_eq!(field(FdPurpose::CUDA_VMM, 16, 16), Err("index"));
        assert_eq!(field(FdPurpose::REGION, 1, 1), Err("index"));
        assert_eq!(field(FdPurpose::WAKE_UP, 7, 9), Ok(()));
    }
}
