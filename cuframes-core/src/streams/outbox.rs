//! [`Outbox`]: bytes that wait to be sent on one connection.

use alloc::vec::Vec;

/// Bytes that wait to be sent. It keeps at most as much of what was sent as of what was not, however slowly that goes.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// How much of them was sent.
    sent: usize,
}

impl Outbox {
    /// Appends what `write` writes.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        // Who reads slowly may never have read everything.
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        write(&mut self.bytes);
    }

    /// How many bytes wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// What to send next.
    #[must_use]
    pub fn poll_transmit(&self) -> Option<&[u8]> {
        self.bytes.get(self.sent..).filter(|bytes| !bytes.is_empty())
    }

    /// The first `n` bytes of it were sent.
    pub fn transmitted(&mut self, n: usize) {
        self.sent = self.sent.saturating_add(n).min(self.bytes.len());
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}
