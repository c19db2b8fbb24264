//! [`Peer`]: one connection that speaks this protocol.

use alloc::vec::Vec;

use cuframes_core::streams::Link;

use crate::wire::{Decoder, FrameError, Message, Version};

/// A connection: bytes in, messages out, and the other way round.
#[derive(Debug)]
pub(crate) struct Peer {
    version: Version,
    decoder: Decoder,
    out: Vec<u8>,
    /// How much of `out` was sent.
    sent: usize,
}

impl Peer {
    pub(crate) const fn new(version: Version) -> Self {
        Self { version, decoder: Decoder::new(version), out: Vec::new(), sent: 0 }
    }

    /// Bytes of a frame that is not complete.
    pub(crate) fn buffered(&self) -> usize {
        self.decoder.buffered()
    }

    /// Bytes that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }
}

impl Link for Peer {
    type Message = Message;
    type Sent = Message;
    type Error = FrameError;

    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Message>, FrameError> {
        self.decoder.next(bytes)
    }

    fn send(&mut self, message: &Message) {
        // Who reads slowly may never have read everything.
        if self.sent > self.out.len() / 2 {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        message.encode(self.version, &mut self.out);
    }

    fn is_open(&self) -> bool {
        true
    }

    fn poll_transmit(&self) -> Option<&[u8]> {
        self.out.get(self.sent..).filter(|bytes| !bytes.is_empty())
    }

    fn transmitted(&mut self, n: usize) {
        self.sent = self.sent.saturating_add(n).min(self.out.len());
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }
}
