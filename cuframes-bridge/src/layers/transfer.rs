//! [`Sending`] and [`Receiving`]: the payload of a snapshot, in chunks.

use alloc::vec::Vec;
use core::fmt;

use crate::wire::{Chunk, MAX_CHUNK};

/// A payload that goes out.
#[derive(Debug)]
pub(crate) struct Sending {
    request: u64,
    payload: Vec<u8>,
    sent: usize,
    /// Bytes of a chunk.
    size: usize,
}

impl Sending {
    pub(crate) fn new(request: u64, payload: Vec<u8>, size: usize) -> Self {
        Self { request, payload, sent: 0, size: size.clamp(1, MAX_CHUNK) }
    }

    /// The next chunk and its data, until everything is sent.
    pub(crate) fn next(&mut self) -> Option<(Chunk, &[u8])> {
        let rest = self.payload.get(self.sent..).filter(|rest| !rest.is_empty())?;
        let data = rest.get(..self.size).unwrap_or(rest);
        self.sent += data.len();
        // At most 8 MiB.
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Some((Chunk { request: self.request, bytes }, data))
    }

    /// Whether all chunks were taken.
    pub(crate) const fn is_over(&self) -> bool {
        self.sent == self.payload.len()
    }

    /// Bytes that were not taken yet.
    pub(crate) fn left(&self) -> u64 {
        u64::try_from(self.payload.len() - self.sent).unwrap_or(u64::MAX)
    }
}

/// A payload that comes in. It keeps what came, whatever was announced.
#[derive(Debug)]
pub(crate) struct Receiving {
    request: u64,
    /// Bytes that no chunk has announced yet.
    left: u64,
    /// Bytes of the last chunk that are to come.
    chunk: usize,
    payload: Vec<u8>,
}

/// What is wrong with a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChunkFault {
    /// It belongs to another request.
    Request {
        /// Which.
        got: u64,
        /// The one under way.
        expected: u64,
    },
    /// It has more bytes than are to come.
    Bytes {
        /// How many.
        got: u32,
        /// How many are to come.
        left: u64,
    },
    /// Something else came before the last chunk.
    Missing {
        /// Bytes that are to come.
        left: u64,
    },
}

impl fmt::Display for ChunkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { got, expected } => write!(f, "a chunk of request {got}, not of {expected}"),
            Self::Bytes { got, left } => {
                write!(f, "a chunk of {got} bytes, of which only {left} are to come")
            }
            Self::Missing { left } => write!(f, "{left} bytes of the snapshot are missing"),
        }
    }
}

impl core::error::Error for ChunkFault {}

impl Receiving {
    pub(crate) const fn new(request: u64, bytes: u64) -> Self {
        Self { request, left: bytes, chunk: 0, payload: Vec::new() }
    }

    /// A chunk begins. One without bytes is none that changes anything.
    pub(crate) fn begin(&mut self, chunk: Chunk) -> Result<(), ChunkFault> {
        if chunk.request != self.request {
            return Err(ChunkFault::Request { got: chunk.request, expected: self.request });
        }
        let fault = ChunkFault::Bytes { got: chunk.bytes, left: self.left };
        self.left = self.left.checked_sub(chunk.bytes.into()).ok_or(fault)?;
        self.chunk = usize::try_from(chunk.bytes).map_err(|_| fault)?;
        Ok(())
    }

    /// Data of the chunk that has begun.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.chunk = self.chunk.saturating_sub(data.len());
        self.payload.extend_from_slice(data);
    }

    /// Whether everything is there.
    pub(crate) const fn is_complete(&self) -> bool {
        self.left == 0 && self.chunk == 0
    }

    /// Bytes that are there.
    pub(crate) const fn len(&self) -> usize {
        self.payload.len()
    }

    /// Bytes that are to come.
    pub(crate) fn missing(&self) -> u64 {
        self.left.saturating_add(u64::try_from(self.chunk).unwrap_or(u64::MAX))
    }

    pub(crate) fn into_payload(self) -> Vec<u8> {
        self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_arrives_as_it_was_sent_in_chunks_of_any_size() {
        let payload: Vec<u8> = (0..100).collect();
        for (size, chunks) in [(1, 100), (7, 15), (50, 2), (99, 2), (100, 1), (usize::MAX, 1)] {
            let mut sending = Sending::new(7, payload.clone(), size);
            let mut receiving = Receiving::new(7, 100);
            let mut count = 0;
            while let Some((chunk, data)) = sending.next() {
                assert!(!receiving.is_complete());
                receiving.begin(chunk).unwrap();
                receiving.push(data);
                count += 1;
            }
            assert_eq!(count, chunks);
            assert!(sending.is_over() && receiving.is_complete());
            assert_eq!(receiving.into_payload(), payload);
        }
        assert!(Sending::new(7, Vec::new(), 1).is_over());
        assert!(Receiving::new(7, 0).is_complete());
    }

    #[test]
    fn chunks_of_another_request_or_with_too_many_bytes_are_refused() {
        let mut receiving = Receiving::new(7, 100);
        assert_eq!(
            receiving.begin(Chunk { request: 8, bytes: 1 }),
            Err(ChunkFault::Request { got: 8, expected: 7 })
        );
        receiving.begin(Chunk { request: 7, bytes: 60 }).unwrap();
        receiving.push(&[0; 20]);
        assert_eq!((receiving.len(), receiving.missing()), (20, 80));
        receiving.push(&[0; 40]);
        receiving.begin(Chunk { request: 7, bytes: 0 }).unwrap();
        assert_eq!(receiving.missing(), 40);
        assert_eq!(
            receiving.begin(Chunk { request: 7, bytes: 41 }),
            Err(ChunkFault::Bytes { got: 41, left: 40 })
        );
    }
}
