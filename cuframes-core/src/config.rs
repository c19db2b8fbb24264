//! Settings that both sides share: policies, features, ring size, timeouts.

use core::fmt;
use core::time::Duration;

use crate::number::wire_number;

wire_number! {
    /// What the publisher does when a subscriber has not finished with the slot it wants to write (§5). 64 bits in the
    /// region header.
    pub struct Policy(u64) {
        /// Overwrite: a slow subscriber loses frames.
        DROP_OLDEST = 0, "drop-oldest";
        /// Wait until every subscriber is done with the slot, or evict it after `consumer_ack_timeout`.
        STRICT_WAIT = 1, "strict-wait";
    }

    /// Who allocated the frame memory (§2). 64 bits in the region header, 32 in HELLO_RESP.
    pub struct Ownership(u32) {
        /// The publisher's library.
        LIBRARY = 0, "library";
        /// The publisher's caller, who registered its own pointers.
        EXTERNAL = 1, "external";
    }

    /// Which frames a subscriber wants (§3.3 `mode`). Unknown values are accepted (D-16).
    pub struct SubscriberMode(u32) {
        /// Always the newest frame; older ones are skipped.
        NEWEST_ONLY = 0, "newest";
        /// Every frame in order; lost ones are reported.
        STRICT_ORDER = 1, "strict";
    }

    /// Where frames live (region header 0x00E0).
    pub struct Backend(u64) {
        /// GPU memory over legacy CUDA IPC handles; also what a plain v1 publisher shows.
        CUDA_IPC = 0, "cuda";
        /// Host memory in a sealed memfd.
        HOST = 1, "host";
        /// GPU memory over CUDA VMM file descriptors.
        CUDA_VMM = 2, "cuda-vmm";
    }
}

impl Backend {
    /// What a subscriber must understand to reach such frames.
    #[must_use]
    pub const fn features(self) -> Features {
        match self {
            Self::HOST => Features::FD_PASSING,
            Self::CUDA_VMM => Features::FD_PASSING.union(Features::CUDA_VMM),
            _ => Features::NONE,
        }
    }
}

/// A set of protocol extensions: 32 bits in HELLO, 64 in the region header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(pub u32);

impl Features {
    /// No extension: exactly v1.
    pub const NONE: Self = Self(0);
    /// X-1: region and pool arrive as file descriptors over the socket.
    pub const FD_PASSING: Self = Self(1 << 0);
    /// a frame in use is never overwritten.
    pub const LEASE: Self = Self(1 << 1);
    /// nobody makes a system call for a peer that is awake.
    pub const WAKE_HINT: Self = Self(1 << 2);
    /// slot memory as CUDA VMM file descriptors.
    pub const CUDA_VMM: Self = Self(1 << 3);
    /// a frame may start at an offset into its allocation.
    pub const MEM_OFFSET: Self = Self(1 << 4);
    /// what the publisher says about its slots, once more where nobody else can write it.
    pub const WITNESS: Self = Self(1 << 5);
    /// no frame is required of this subscriber: under STRICT_WAIT nobody waits for its acknowledgements.
    pub const NO_ACK: Self = Self(1 << 6);

    /// The features in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The features in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every feature of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Features, &str); 7] = [
            (Features::FD_PASSING, "fd-passing"),
            (Features::LEASE, "lease"),
            (Features::WAKE_HINT, "wake-hint"),
            (Features::CUDA_VMM, "cuda-vmm"),
            (Features::MEM_OFFSET, "mem-offset"),
            (Features::WITNESS, "witness"),
            (Features::NO_ACK, "no-ack"),
        ];
        let mut rest = self.0;
        let mut separator = "";
        for (feature, name) in NAMES.into_iter().filter(|(feature, _)| self.contains(*feature)) {
            write!(f, "{separator}{name}")?;
            rest &= !feature.0;
            separator = "+";
        }
        match (rest, separator) {
            (0, "") => f.write_str("none"),
            (0, _) => Ok(()),
            _ => write!(f, "{separator}{rest:#x}"),
        }
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({self})")
    }
}

/// Slots in a ring: 1 to 16 (§2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingSize(u8);

impl RingSize {
    /// The largest ring (§2).
    pub const MAX: u8 = 16;

    /// A ring of `slots` slots, or `None` outside 1..=16.
    #[must_use]
    pub const fn new(slots: u64) -> Option<Self> {
        #[expect(clippy::as_conversions, reason = "checked to be 1..=16")]
        match slots {
            1..=16 => Some(Self(slots as u8)),
            _ => None,
        }
    }

    /// The number of slots.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for RingSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for RingSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingSize({})", self.0)
    }
}

/// The bit of a subscriber in every bitmap of the region: 1 to 31 (§2.3; bit 0 is never assigned).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriberBit(u8);

impl SubscriberBit {
    /// The most subscribers a stream can have.
    pub const MAX: u8 = 31;

    /// Bit number `bit`, or `None` outside 1..=31.
    #[must_use]
    pub const fn new(bit: u64) -> Option<Self> {
        #[expect(clippy::as_conversions, reason = "checked to be 1..=31")]
        match bit {
            1..=31 => Some(Self(bit as u8)),
            _ => None,
        }
    }

    /// The bits set in `bitmap`, lowest first; bits that are never assigned are left out.
    pub fn in_bitmap(bitmap: u64) -> impl Iterator<Item = Self> {
        let mut rest = bitmap & 0xFFFF_FFFE;
        core::iter::from_fn(move || {
            let bit = Self::new(u64::from(rest.trailing_zeros()))?;
            rest &= rest - 1;
            Some(bit)
        })
    }

    /// The bit's number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The bitmap with only this bit set.
    #[must_use]
    pub const fn mask(self) -> u64 {
        1 << self.0
    }
}

impl fmt::Display for SubscriberBit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for SubscriberBit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubscriberBit({})", self.0)
    }
}

/// Deadlines of a stream; every one has a default and may be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Timeouts {
    /// For each step of the handshake, on both sides. Default 5 s (D-29).
    pub handshake: Duration,
    /// STRICT_WAIT: how long one subscriber may keep the publisher waiting for an acknowledgement. Default 1 s (D-31).
    pub consumer_ack: Duration,
    /// How long one lease holder may keep the publisher waiting. Default 2 s.
    pub lease: Duration,
    /// How long a publisher waits for its subscribers to close at shutdown. Default 1 s (D-12).
    pub shutdown_grace: Duration,
    /// How long the bit of a subscriber that vanished stays unused while its process lives. Default 10 s (D-19).
    pub quarantine: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            consumer_ack: Duration::from_secs(1),
            lease: Duration::from_secs(2),
            shutdown_grace: Duration::from_secs(1),
            quarantine: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_1_to_16_slots_and_subscribers_have_bits_1_to_31() {
        assert_eq!(
            [0, 1, 16, 17].map(|n| RingSize::new(n).map(RingSize::get)),
            [None, Some(1), Some(16), None]
        );
        let bits = [0, 1, 31, 32, 256].map(|n| SubscriberBit::new(n).map(SubscriberBit::get));
        assert_eq!(bits, [None, Some(1), Some(31), None, None]);
    }

    #[test]
    fn a_bitmap_is_walked_over_its_assignable_bits_only() {
        let bits: alloc::vec::Vec<u8> = SubscriberBit::in_bitmap(u64::MAX).map(SubscriberBit::get).collect();
        assert_eq!(bits, (1..=31).collect::<alloc::vec::Vec<u8>>());
        assert_eq!(SubscriberBit::in_bitmap(1 | (1 << 32)).count(), 0);
    }

    #[test]
    fn features_print_by_name_and_unknown_ones_by_number() {
        use alloc::string::ToString;
        assert_eq!(Features::NONE.to_string(), "none");
        assert_eq!(Features(0b111).to_string(), "fd-passing+lease+wake-hint");
        assert_eq!(Features::LEASE.union(Features::NO_ACK).to_string(), "lease+no-ack");
        assert_eq!(Features(0x101).to_string(), "fd-passing+0x100");
        assert_eq!(Features(0x100).to_string(), "0x100");
    }
}
