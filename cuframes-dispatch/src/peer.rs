//! [`Peer`]: one connection that speaks this protocol.

use cuframes_core::streams::{Link, Outbox};

use crate::wire::{Decoder, FrameError, Message, Version};

/// A connection: bytes in, messages out, and the other way round.
#[derive(Debug)]
pub(crate) struct Peer {
    version: Version,
    decoder: Decoder,
    out: Outbox,
}

impl Peer {
    pub(crate) fn new(version: Version) -> Self {
        Self { version, decoder: Decoder::new(version), out: Outbox::default() }
    }

    /// Bytes of a frame that is not complete.
    pub(crate) fn buffered(&self) -> usize {
        self.decoder.buffered()
    }

    /// Bytes that wait to be sent.
    pub(crate) const fn waiting(&self) -> usize {
        self.out.waiting()
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
        self.out.push(|out| message.encode(self.version, out));
    }

    fn is_open(&self) -> bool {
        true
    }

    fn poll_transmit(&self) -> Option<&[u8]> {
        self.out.poll_transmit()
    }

    fn transmitted(&mut self, n: usize) {
        self.out.transmitted(n);
    }
}
