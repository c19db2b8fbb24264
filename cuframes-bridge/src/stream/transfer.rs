//! [`Payload`]: the bytes of a frame; [`Transfer`]: a frame on its way out.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::wire::{Begin, Chunk, Done, MAX_CHUNK, Message};

/// The bytes of a frame, where they are.
pub trait Payload: fmt::Debug {
    /// Its valid bytes; the same each time.
    fn bytes(&self) -> &[u8];

    /// Whether the bytes that were read so far are those of one frame: nobody has overwritten it.
    fn is_intact(&self) -> bool;
}

/// Bytes that belong to whoever has them.
impl Payload for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn is_intact(&self) -> bool {
        true
    }
}

/// What of a frame is to be sent next. The frame's own bytes are sent from where they are; here is only what is between them.
#[derive(Debug)]
pub(super) struct Transfer {
    request: u64,
    /// What comes before the next bytes of the frame.
    head: Vec<u8>,
    head_sent: usize,
    /// The bytes of the frame that come after it.
    data: Range<usize>,
    /// How many bytes the frame has.
    total: usize,
    has_verdict: bool,
    /// It answers SAVE_REQ, which the sender ends.
    is_answer: bool,
}

impl Transfer {
    pub(super) fn new(begin: Begin, total: usize, is_answer: bool) -> Self {
        let request = begin.id.request;
        let mut head = Vec::new();
        let message = if is_answer { Message::Begin(begin) } else { Message::LoadBegin(begin) };
        message.encode(&mut head);
        let mut transfer =
            Self { request, head, head_sent: 0, data: 0..0, total, has_verdict: false, is_answer };
        if total > 0 {
            transfer.next_chunk();
        }
        transfer
    }

    /// What to send next, of a frame with these bytes; returns how many parts.
    pub(super) fn parts<'a>(&'a self, frame: &'a [u8], parts: &mut [&'a [u8]]) -> usize {
        let head = self.head.get(self.head_sent..).unwrap_or_default();
        let data = frame.get(self.data.clone()).unwrap_or_default();
        let mut n = 0;
        for (to, part) in parts.iter_mut().zip([head, data].into_iter().filter(|part| !part.is_empty())) {
            *to = part;
            n += 1;
        }
        n
    }

    /// So many bytes were sent; whether the frame is over now. When all its own are, `is_intact` says whether they were one
    /// frame.
    pub(super) fn sent(&mut self, n: usize, is_intact: impl FnOnce() -> bool) -> bool {
        let of_head = n.min(self.head.len() - self.head_sent);
        self.head_sent += of_head;
        self.data.start = self.data.end.min(self.data.start + (n - of_head));
        if self.head_sent < self.head.len() || !self.data.is_empty() {
            return false;
        }
        if self.data.end < self.total {
            self.next_chunk();
            return false;
        }
        if self.has_verdict {
            return true;
        }
        self.has_verdict = true;
        self.head.clear();
        self.head_sent = 0;
        Message::Chunk(Chunk { request: self.request, bytes: 1 }).encode(&mut self.head);
        self.head.push(is_intact().into());
        if self.is_answer {
            let done = Done { request: self.request, status: 0, message: Default::default() };
            Message::Done(done).encode(&mut self.head);
        }
        false
    }

    /// Begins the next chunk.
    fn next_chunk(&mut self) {
        let start = self.data.end;
        let bytes = MAX_CHUNK.min(self.total - start);
        self.data = start..start + bytes;
        if self.head_sent == self.head.len() {
            self.head_sent = 0;
            self.head.clear();
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Message::Chunk(Chunk { request: self.request, bytes }).encode(&mut self.head);
    }
}
