//! [`Held`]: a registration that may have to wait until everybody is ready.

use alloc::vec::Vec;

use cuframes_core::streams::ConnId;

use crate::message::Registration;
use crate::msgpack::DecodeError;

/// A message on the input socket, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) conn: ConnId,
    pub(crate) identity: Vec<u8>,
    pub(crate) frames: usize,
    pub(crate) registration: Result<Registration, DecodeError>,
}

/// The index that a routing id says.
pub(crate) fn index_of(identity: &[u8]) -> Option<u16> {
    identity.try_into().map(u16::from_le_bytes).ok()
}
