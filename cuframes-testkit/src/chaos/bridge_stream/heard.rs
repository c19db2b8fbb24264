//! [`Link`]: a connection of a sender, as its receiver sees it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use cuframes_bridge::stream::{Announcement, FrameInfo, Payload};
use cuframes_bridge::wire::{Begin, Decoded, Decoder, Hello, Message};
use cuframes_core::streams::ConnId;
use cuframes_core::{Instant, RingSize};

use super::frames::{MAX_TEXT, begin, cut, limits};

/// A frame, and whether nobody has overwritten it, which the script says.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) bytes: Rc<[u8]>,
    pub(super) is_intact: Rc<Cell<bool>>,
}

impl Payload for Frame {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn is_intact(&self) -> bool {
        self.is_intact.get()
    }
}

impl Frame {
    /// What is known of it.
    pub(super) fn sized(&self, info: FrameInfo) -> FrameInfo {
        FrameInfo { written_bytes: u64::try_from(self.bytes.len()).unwrap(), ..info }
    }
}

/// A frame that the sender was given.
pub(super) struct Flight {
    pub(super) info: FrameInfo,
    pub(super) frame: Frame,
    /// When its sending began, for the last time.
    pub(super) began: Option<Instant>,
}

impl Flight {
    /// What is said of it: with the time from its time stamp until its sending began, if that can be of this clock.
    pub(super) fn as_said(&self) -> FrameInfo {
        let pts_ns = self.info.pts_ns;
        let since = u64::try_from(self.began.unwrap().as_nanos() - pts_ns).unwrap_or(0);
        let before_ns = if pts_ns > 0 && since < 3_600_000_000_000 { since } else { 0 };
        FrameInfo { before_ns, ..self.info }
    }
}

/// What the receiver has asked for, and the owner has answered.
pub(super) struct Owed {
    pub(super) request: u64,
    pub(super) answer: Result<(FrameInfo, Frame), String>,
    /// How many other frames have begun since.
    pub(super) passed: usize,
}

/// A connection.
pub(super) struct Link {
    pub(super) conn: ConnId,
    /// When something went on last.
    pub(super) moved: Instant,
    /// The sender has told that there is something to be sent, and not all of it was read since.
    pub(super) is_told: bool,
    /// What the receiver has said, and has not arrived.
    pub(super) pending: VecDeque<u8>,
    /// Reads what has arrived.
    pub(super) said: Decoder,
    /// How many of the frames that are under way have been read to their ends.
    pub(super) sent: usize,
    /// The one after these has begun.
    pub(super) has_begun: bool,
    /// The ring is another one than was said, or was so for a while.
    pub(super) was_other: bool,
    pub(super) owed: VecDeque<Owed>,
    announcement: Announcement,
    is_greeted: bool,
    decoder: Decoder,
    coming: Option<Coming>,
}

/// A frame whose beginning was read.
struct Coming {
    request: u64,
    frame: Frame,
    is_answer: bool,
    got: usize,
    /// Whether it was one frame when its last byte was read.
    verdict: Option<bool>,
    has_verdict: bool,
}

impl Link {
    pub(super) fn new(now: Instant, conn: ConnId, announcement: Announcement) -> Self {
        Self {
            conn,
            moved: now,
            is_told: false,
            pending: VecDeque::new(),
            said: Decoder::new(limits()),
            sent: 0,
            has_begun: false,
            was_other: false,
            owed: VecDeque::new(),
            announcement,
            is_greeted: false,
            decoder: Decoder::new(limits()),
            coming: None,
        }
    }

    /// Whether the sender has something to say, beside the next frame.
    pub(super) fn is_busy(&self) -> bool {
        !self.is_greeted || self.coming.is_some() || self.has_begun || !self.owed.is_empty()
    }

    /// Whether nothing is being said, and nothing is waited for.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_busy() && self.sent == 0
    }

    /// The slots of the ring, as HELLO says.
    pub(super) fn ring_size(&self) -> RingSize {
        self.announcement.ring_size
    }

    /// Whether a frame that was asked for is being sent, or waits for that.
    pub(super) fn is_answering(&self) -> bool {
        self.owed.iter().any(|owed| owed.answer.is_ok()) || self.coming.as_ref().is_some_and(|c| c.is_answer)
    }

    /// Whether all that was read is understood, and no frame is on its way.
    pub(super) fn is_between(&self) -> bool {
        self.coming.is_none() && self.decoder.may_end() && self.decoder.buffered() == 0
    }

    /// Checks what the sender says; returns how many answers have ended.
    pub(super) fn hear(&mut self, flights: &VecDeque<Flight>, mut bytes: &[u8]) -> usize {
        let mut answered = 0;
        while !bytes.is_empty() {
            let data = self.decoder.take_data(&mut bytes);
            if !data.is_empty() {
                self.data(data);
                continue;
            }
            let message = match self.decoder.next(&mut bytes) {
                Ok(Some(Decoded::Message(message))) => message,
                Ok(None) => continue,
                other => panic!("a sender says {other:?}"),
            };
            match (message, &self.coming) {
                (Message::Hello(hello), None) if !self.is_greeted => self.greet(&hello),
                (Message::LoadBegin(begin), None) if self.is_greeted => self.load(&begin, flights),
                (Message::Begin(begin), None) if self.is_greeted => self.answer(&begin),
                (Message::Chunk(chunk), Some(coming)) => {
                    let left = coming.frame.bytes.len() + 1 - coming.got;
                    assert_eq!(chunk.request, coming.request);
                    assert!(
                        !coming.has_verdict && (1..=left).contains(&usize::try_from(chunk.bytes).unwrap())
                    );
                }
                (Message::Done(done), Some(Coming { request, is_answer: true, has_verdict: true, .. })) => {
                    assert_eq!((done.request, done.status), (*request, 0));
                    self.coming = None;
                    answered += 1;
                }
                (other, _) => panic!("a sender says {other:?}"),
            }
        }
        answered
    }

    fn greet(&mut self, hello: &Hello) {
        let Announcement { key, meta, ring_size, strict, .. } = &self.announcement;
        assert_eq!((hello.model_name.as_str(), hello.model_id), (key.as_str(), meta.format.0));
        assert_eq!((hello.ctx_size, hello.has_output), (ring_size.get().into(), u32::from(*strict)));
        assert_eq!((hello.n_layers, hello.layer_end, hello.listen_port), (meta.height, meta.height - 1, 0));
        self.is_greeted = true;
    }

    /// A frame begins: the next one, in the order in which they were given.
    fn load(&mut self, said: &Begin, flights: &VecDeque<Flight>) {
        let Some(flight) = flights.get(self.sent) else { panic!("no frame is to be sent") };
        assert!(self.has_begun);
        let info = flight.as_said();
        assert_eq!(*said, begin(&info, info.seq));
        // It may have begun before there was an answer; no other one has.
        self.owed.iter_mut().for_each(|owed| owed.passed += 1);
        assert!(self.owed.iter().all(|owed| owed.passed == 1), "whoever has asked waits for frame {info:?}");
        self.come(Coming::new(info.seq, flight.frame.clone(), false));
    }

    /// What was asked for begins, or does not come.
    fn answer(&mut self, said: &Begin) {
        let Some(Owed { request, answer, .. }) = self.owed.pop_front() else {
            panic!("nothing was asked for")
        };
        match answer {
            Ok((info, frame)) => {
                assert_eq!(*said, begin(&info, request));
                self.come(Coming::new(request, frame, true));
            }
            Err(why) => {
                assert_eq!((said.id.request, said.payload_bytes, said.tokens.len()), (request, 0, 0));
                assert!(said.status != 0);
                assert_eq!(said.message, cut(&why, MAX_TEXT));
            }
        }
    }

    fn come(&mut self, coming: Coming) {
        self.coming = Some(coming);
        self.data(&[]);
    }

    fn data(&mut self, data: &[u8]) {
        let coming = self.coming.as_mut().unwrap();
        let left = coming.frame.bytes.get(coming.got..).unwrap();
        let (own, rest) = data.split_at(data.len().min(left.len()));
        assert_eq!(left.get(..own.len()), Some(own));
        coming.got += own.len();
        if let [verdict, behind @ ..] = rest {
            assert_eq!(Some(*verdict), coming.verdict.map(u8::from), "whether it is one frame");
            assert!(behind.is_empty());
            coming.has_verdict = true;
            if !coming.is_answer {
                self.coming = None;
                self.sent += 1;
                self.has_begun = false;
            }
        } else if coming.got == coming.frame.bytes.len() {
            coming.verdict = Some(coming.frame.is_intact.get());
        }
    }
}

impl Coming {
    fn new(request: u64, frame: Frame, is_answer: bool) -> Self {
        Self { request, frame, is_answer, got: 0, verdict: None, has_verdict: false }
    }
}
