//! [`Raw`]: a peer that speaks the protocol by hand.

use std::time::Duration;

use super::Wire;
use super::bytes::{ERROR, PING, PONG, message};

/// A message as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// Descriptors that came with its first byte.
    pub fds: usize,
}

impl Message {
    /// `message_type`.
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn message_type(&self) -> u32 {
        u32_at(&self.bytes, 0)
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(8..).unwrap_or_default()
    }
}

/// The raw end of a connection, message by message.
#[derive(Debug)]
pub struct Raw<W> {
    wire: W,
    /// How often it asked whether the other end is there.
    asked: u32,
}

impl<W: Wire> Raw<W> {
    /// Speaks over `wire`.
    pub const fn new(wire: W) -> Self {
        Self { wire, asked: 0 }
    }

    /// Sends bytes in one piece. The other end may have closed.
    pub fn send(&mut self, bytes: &[u8]) {
        self.send_with(bytes, &[]);
    }

    /// As [`send`](Self::send), with descriptors for these purposes.
    pub fn send_with(&mut self, bytes: &[u8], fds: &[u32]) {
        let _ = self.wire.send(bytes, fds);
    }

    /// As [`send`](Self::send), and says whether the other end was open.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.wire.send(bytes, &[])
    }

    /// [`Wire::pass`].
    pub fn pass(&mut self, time: Duration) {
        self.wire.pass(time);
    }

    /// [`Wire::junk_open`].
    pub fn junk_open(&mut self) -> usize {
        self.wire.junk_open()
    }

    /// The next message must be this one, without a descriptor.
    ///
    /// # Panics
    /// If it is not.
    pub fn expect(&mut self, bytes: &[u8]) {
        self.expect_with(bytes, 0);
    }

    /// The next message must be this one, with so many descriptors.
    ///
    /// # Panics
    /// If it is not.
    pub fn expect_with(&mut self, bytes: &[u8], fds: usize) {
        assert_eq!(self.next(), Some(Message { bytes: bytes.to_vec(), fds }));
    }

    /// The connection must be over, without another word.
    ///
    /// # Panics
    /// If it is not.
    pub fn expect_end(&mut self) {
        assert_eq!(self.next(), None);
    }

    /// The next message must be an ERROR (§3.9) with this code and these words in its text, and the last one.
    ///
    /// # Panics
    /// If it is not.
    pub fn expect_error(&mut self, code: i32, words: &[&str]) {
        let error = self.next().unwrap_or_else(|| panic!("closed without ERROR {code} ({words:?})"));
        assert_eq!((error.message_type(), error.fds), (ERROR, 0), "{error:?}");
        let payload = error.payload();
        let text = payload.get(8..payload.len() - 12).unwrap();
        let (len, text) = (u32_at(payload, 4), str::from_utf8(text).unwrap());
        assert_eq!(
            (u32_at(payload, 0).cast_signed(), usize::try_from(len).unwrap()),
            (code, text.len()),
            "{text}"
        );
        assert!(payload.ends_with(&[0; 12]), "reserved bytes that are not 0");
        for word in words {
            assert!(text.contains(word), "{text:?} does not speak of {word:?}");
        }
        self.expect_end();
    }

    /// Nothing is on the way, and the connection goes on.
    ///
    /// # Panics
    /// If that is not so.
    pub fn expect_silence(&mut self) {
        self.asked += 1;
        let question = [&b"silence "[..], &self.asked.to_le_bytes()].concat();
        self.send(&message(PING, &question));
        self.expect(&message(PONG, &question));
    }

    fn fill(&mut self, bytes: &mut Vec<u8>, len: usize) {
        while bytes.len() < len {
            let (more, fds) = self.wire.receive(len - bytes.len());
            assert!(!more.is_empty(), "closed inside a message: {bytes:?}");
            assert_eq!(fds, 0, "a descriptor that is not with the first byte of a message");
            bytes.extend(more);
        }
    }
}

/// The messages of the other end, as they come, until it closes. They must be whole, no longer than allowed (§3.1), and have
/// no descriptor behind their first byte (D-22).
impl<W: Wire> Iterator for Raw<W> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let (mut bytes, fds) = self.wire.receive(1);
        if bytes.is_empty() {
            return None;
        }
        self.fill(&mut bytes, 8);
        let len = usize::try_from(u32_at(&bytes, 4)).unwrap();
        assert!(len <= 4096, "a payload of {len} bytes");
        self.fill(&mut bytes, 8 + len);
        Some(Message { bytes, fds })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes.get(at..).and_then(<[u8]>::first_chunk).unwrap())
}
