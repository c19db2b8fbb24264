//! [`Outbox`]: bytes that wait to be sent, and the descriptors that go with some of them (D-22).

use alloc::collections::VecDeque;

use bytes::{Buf, BytesMut};

use super::Transmit;
use crate::number::{to_u64, to_usize};

/// A queue of bytes, some of which carry a descriptor.
#[derive(Debug)]
pub(super) struct Outbox<F> {
    bytes: BytesMut,
    /// Bytes sent so far.
    sent: u64,
    /// Descriptors and the bytes they go with, counted like `sent`; ascending.
    fds: VecDeque<(u64, F)>,
}

impl<F> Outbox<F> {
    pub(super) fn new() -> Self {
        Self { bytes: BytesMut::new(), sent: 0, fds: VecDeque::new() }
    }

    /// Appends a message. A descriptor goes with its first byte.
    pub(super) fn push(&mut self, fd: Option<F>, encode: impl FnOnce(&mut BytesMut)) {
        let at = self.sent + to_u64(self.bytes.len());
        self.fds.extend(fd.map(|fd| (at, fd)));
        encode(&mut self.bytes);
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.fds.clear();
    }

    pub(super) fn poll_transmit(&self) -> Option<Transmit<'_, F>> {
        let mut fds = self.fds.iter().peekable();
        let fd = fds.next_if(|(at, _)| *at == self.sent).map(|(_, fd)| fd);
        let end = fds.next().map_or(self.bytes.len(), |(at, _)| to_usize(at - self.sent));
        let bytes = self.bytes.get(..end).filter(|bytes| !bytes.is_empty())?;
        Some(Transmit { bytes, fd })
    }

    /// Drops the first `n` bytes of the current [`Transmit`]; more than it has counts as all of it.
    pub(super) fn transmitted(&mut self, n: usize) {
        let n = self.poll_transmit().map_or(0, |transmit| n.min(transmit.bytes.len()));
        if n > 0 && self.fds.front().is_some_and(|(at, _)| *at == self.sent) {
            self.fds.pop_front();
        }
        self.bytes.advance(n);
        self.sent += to_u64(n);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use bytes::BufMut;

    use super::*;

    fn outbox() -> Outbox<u32> {
        let mut outbox = Outbox::new();
        for (fd, bytes) in [(None, "aa"), (Some(1), "bb"), (Some(2), "cc"), (None, "dd")] {
            outbox.push(fd, |out| out.put_slice(bytes.as_bytes()));
        }
        outbox
    }

    fn sent_in_steps_of(n: usize) -> Vec<(Vec<u8>, Option<u32>)> {
        let mut outbox = outbox();
        let mut sent = Vec::new();
        while let Some(Transmit { bytes, fd }) = outbox.poll_transmit() {
            sent.push((bytes[..n.min(bytes.len())].to_vec(), fd.copied()));
            outbox.transmitted(n);
        }
        sent
    }

    #[test]
    fn a_transmit_ends_before_the_next_descriptor() {
        let expected = [(&b"aa"[..], None), (b"bb", Some(1)), (b"ccdd", Some(2))];
        assert_eq!(sent_in_steps_of(usize::MAX), expected.map(|(bytes, fd)| (bytes.to_vec(), fd)));
    }

    #[test]
    fn a_descriptor_leaves_with_the_first_byte_of_its_message() {
        let expected = [None, None, Some(1), None, Some(2), None, None, None];
        let fds: Vec<_> = sent_in_steps_of(1).into_iter().map(|(_, fd)| fd).collect();
        assert_eq!(fds, expected);
    }

    #[test]
    fn a_send_that_took_nothing_changes_nothing() {
        let mut outbox = outbox();
        outbox.transmitted(2);
        outbox.transmitted(0);
        assert_eq!(outbox.poll_transmit(), Some(Transmit { bytes: b"bb", fd: Some(&1) }));
    }
}
