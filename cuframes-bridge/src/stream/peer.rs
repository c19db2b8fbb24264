//! [`Peer`]: one sender, as a receiver sees it.

use alloc::vec::Vec;
use core::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{Link, Outbox};

use super::LIMITS;
use super::fault::LinkFault;
use super::info::{FETCH, FrameInfo, Greeting, VERDICT_BYTES};
use super::words::Fate;
use crate::wire::{Chunk, Decoded, Decoder, Message};

/// Bytes in, messages out; the data of a chunk are left to whoever has a place for them.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) decoder: Decoder,
    out: Outbox,
}

impl Wire {
    pub(super) fn new() -> Self {
        Self { decoder: Decoder::new(LIMITS), out: Outbox::default() }
    }

    pub(super) const fn waiting(&self) -> usize {
        self.out.waiting()
    }
}

impl Link for Wire {
    type Message = Message;
    type Sent = Message;
    type Error = LinkFault;

    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Message>, LinkFault> {
        match self.decoder.next(bytes)? {
            Some(Decoded::Unknown(header)) => Err(LinkFault::Unexpected(header.kind)),
            Some(Decoded::Message(message)) => Ok(Some(message)),
            // Its bytes, of which there may be any number, are not waited for.
            None => self.decoder.unknown().map_or(Ok(None), |header| Err(LinkFault::Unexpected(header.kind))),
        }
    }

    fn send(&mut self, message: &Message) {
        self.out.push(|out| message.encode(out));
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

/// One sender.
#[derive(Debug)]
pub(super) struct Peer<S> {
    pub(super) greeting: Option<Greeting>,
    pub(super) stage: Stage<S>,
    /// What was read and is not looked at yet: there is no place for it.
    pub(super) rest: Vec<u8>,
    /// When something came last.
    pub(super) moved: Instant,
    /// A frame that was asked for.
    pub(super) wanted: Option<Wanted>,
    /// Its end was told; it is only waited for until it has read why.
    pub(super) is_left: bool,
}

/// A frame that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) request: u64,
    pub(super) until: Instant,
    /// How many others have come before it, or, when it is there, before the last word.
    pub(super) before: u32,
    pub(super) answer: Answered,
}

/// How far the answer to a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    No,
    /// The frame has begun.
    Begun,
    /// All of it is there, and only the last word is missing.
    Whole,
}

/// How far it is with a frame.
#[derive(Debug)]
pub(super) enum Stage<S> {
    /// None has begun.
    Between,
    /// One has begun, and nobody has said yet where it goes.
    Offered(Incoming),
    /// Its bytes come, for this place, or for none.
    Coming(Incoming, Option<S>),
    /// All of it is there, and nobody has said yet what became of it.
    Complete(Incoming),
}

/// A frame that comes.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    pub(super) info: FrameInfo,
    pub(super) request: u64,
    /// How many bytes have come, the verdict included.
    pub(super) got: u64,
    pub(super) began: Instant,
    /// How long it waited for a place.
    pub(super) waited: Duration,
    /// From the beginning to the end without that.
    pub(super) wire: Duration,
    pub(super) ended: Instant,
    pub(super) is_whole: bool,
    /// Why it has no place.
    pub(super) skipped: Option<Fate>,
}

impl Incoming {
    pub(super) const fn new(now: Instant, info: FrameInfo, request: u64) -> Self {
        Self {
            info,
            request,
            got: 0,
            began: now,
            waited: Duration::ZERO,
            wire: Duration::ZERO,
            ended: now,
            is_whole: false,
            skipped: None,
        }
    }

    /// Bytes that are still to come. The sum was looked at when the words about the frame were read.
    pub(super) const fn left(&self) -> u64 {
        self.info.written_bytes.saturating_add(VERDICT_BYTES).saturating_sub(self.got)
    }

    /// Where the next `len` bytes go, if they are the frame's own.
    pub(super) fn place<'a>(&self, slot: &'a mut [u8], len: usize) -> Option<&'a mut [u8]> {
        let from = usize::try_from(self.got).ok()?;
        let to = usize::try_from(self.info.written_bytes).ok()?.min(from.checked_add(len)?);
        slot.get_mut(from..to).filter(|place| !place.is_empty())
    }

    pub(super) fn came(&mut self, n: usize) {
        self.got += u64::try_from(n).unwrap_or(0).min(self.left());
    }
}

impl<S> Peer<S> {
    /// Whether the frame that comes was asked for, and is still wanted.
    pub(super) const fn is_fetching(&self) -> bool {
        matches!(
            &self.stage,
            Stage::Offered(incoming) | Stage::Coming(incoming, _)
                if incoming.request & FETCH != 0 && incoming.skipped.is_none()
        )
    }
}

impl<S: AsMut<[u8]>> Peer<S> {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            greeting: None,
            stage: Stage::Between,
            rest: Vec::new(),
            moved: now,
            wanted: None,
            is_left: false,
        }
    }

    /// Whether what comes has a place.
    pub(super) const fn is_hungry(&self) -> bool {
        matches!(self.stage, Stage::Between | Stage::Coming(..))
    }

    /// Whether it owes bytes of a frame.
    pub(super) const fn is_owing(&self) -> bool {
        matches!(self.stage, Stage::Coming(..))
    }

    /// Data of the frame that has begun are announced.
    pub(super) fn chunk(&self, chunk: Chunk) -> Result<(), LinkFault> {
        let Stage::Coming(incoming, _) = &self.stage else {
            return Err(LinkFault::OtherFrame { found: chunk.request, expected: 0 });
        };
        if chunk.request != incoming.request {
            return Err(LinkFault::OtherFrame { found: chunk.request, expected: incoming.request });
        }
        if u64::from(chunk.bytes) > incoming.left() {
            return Err(LinkFault::TooMuch { request: chunk.request });
        }
        Ok(())
    }

    /// Where the next `len` bytes of data are to be read to.
    pub(super) fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        match &mut self.stage {
            Stage::Coming(incoming, Some(slot)) => incoming.place(slot.as_mut(), len),
            _ => None,
        }
    }

    /// Data came that are not where they belong yet.
    pub(super) fn data(&mut self, mut data: &[u8]) {
        let Stage::Coming(incoming, slot) = &mut self.stage else { return };
        while let Some(first) = data.first() {
            let len = data.len();
            let n = if let Some(place) = slot.as_mut().and_then(|slot| incoming.place(slot.as_mut(), len)) {
                let n = place.len();
                place.copy_from_slice(data.get(..n).unwrap_or_default());
                n
            } else if incoming.left() > VERDICT_BYTES {
                usize::try_from(incoming.left() - VERDICT_BYTES).map_or(len, |left| left.min(len))
            } else {
                incoming.is_whole = *first == 1;
                1
            };
            incoming.came(n);
            data = data.get(n..).unwrap_or_default();
        }
    }
}
