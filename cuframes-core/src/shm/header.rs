//! The static part of the region (§2): written once by the publisher, copied out and validated once by a subscriber.

/// What a region says about its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamHeader;
