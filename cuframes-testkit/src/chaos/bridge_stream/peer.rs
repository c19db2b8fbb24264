//! [`Peer`]: a connection of a receiver, as its sender and its owner see it.

use std::collections::VecDeque;
use std::time::Duration;

use cuframes_bridge::stream::{FarTimes, Fate, FrameInfo, Greeting, LinkFault, Received, TORN};
use cuframes_bridge::wire::{Decoded, Decoder, Done, Message, SnapshotId};
use cuframes_core::{Instant, Key};

use super::frames::{FETCH, MAX_TEXT, cut, limits};
use super::said::{Item, Said};

/// A place for a frame.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: usize,
    pub(super) bytes: Vec<u8>,
}

impl AsMut<[u8]> for Place {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// A connection.
pub(super) struct Peer {
    /// What its sender has said, and has not arrived.
    pub(super) pending: VecDeque<u8>,
    /// What has.
    pub(super) said: Said,
    pub(super) stage: Stage,
    pub(super) greeting: Option<Greeting>,
    pub(super) wanted: Option<Wanted>,
    /// What was asked for last.
    pub(super) asked: u64,
    /// The frame that its sender has begun, and how many bytes it has sent of it.
    pub(super) begun: Option<(FrameInfo, u64, usize)>,
    /// When something came last.
    pub(super) moved: Instant,
    /// When its end was told.
    pub(super) left: Option<Instant>,
    /// How it may end now.
    pub(super) ends: Ends,
    /// Requests that are refused at once.
    pub(super) refusals: usize,
    /// There is something to be sent, and it was told since all was read.
    pub(super) is_told: bool,
    /// How many bytes had come when it was not read any more.
    held_at: u64,
    decoder: Decoder,
    expected: VecDeque<Message>,
    /// It is told why it ends, or may be.
    last_word: LastWord,
    /// What was asked for does not come, because the connection ends; and whether its time is over.
    must_leave: Option<bool>,
}

#[derive(Debug)]
pub(super) enum Stage {
    Between,
    Offered(Incoming),
    Coming(Incoming),
    Complete(Incoming),
}

#[derive(Clone, Debug)]
pub(super) struct Incoming {
    pub(super) info: FrameInfo,
    pub(super) request: u64,
    pub(super) offered: Instant,
    pub(super) received: Instant,
    ended: Instant,
    /// Where it goes, or why nowhere.
    pub(super) place: Result<usize, Fate>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) request: u64,
    pub(super) until: Instant,
    before: u32,
    answer: Answered,
}

/// How far the answer to a request is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Answered {
    No,
    /// The frame has begun.
    Begun,
    /// All of it is there, and only the last word is missing.
    Whole,
}

/// Why a connection may end, beside what its sender says and time.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Ends {
    No,
    /// It was closed, by the sender or in a shut-down.
    Closed,
    Refused(String),
    /// Another one needs its place.
    Crowded,
    /// Another sender of the stream has come.
    Replaced,
    /// So much waits for its sender.
    Waiting(usize),
}

#[derive(Clone, PartialEq, Debug)]
enum LastWord {
    None,
    Any,
    Exactly(String),
    Said,
}

impl Peer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            pending: VecDeque::new(),
            said: Said::new(),
            stage: Stage::Between,
            greeting: None,
            wanted: None,
            asked: FETCH,
            begun: None,
            moved: now,
            left: None,
            ends: Ends::No,
            refusals: 0,
            is_told: false,
            held_at: 0,
            decoder: Decoder::new(limits()),
            expected: VecDeque::new(),
            last_word: LastWord::None,
            must_leave: None,
        }
    }

    /// Whether it is read.
    pub(super) fn is_hungry(&self) -> bool {
        matches!(self.stage, Stage::Between | Stage::Coming(_))
    }

    /// Bytes that have come, and are kept until there is a place for them.
    pub(super) fn held(&self) -> u64 {
        if self.is_hungry() { 0 } else { self.said.len - self.held_at }
    }

    /// When it ends by itself.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.left.is_some() {
            return None;
        }
        let own = match &self.stage {
            _ if self.greeting.is_none() => Some(self.moved + HELLO),
            Stage::Coming(_) => Some(self.moved + STALL),
            _ => None,
        };
        let wanted = self.wanted.filter(|wanted| wanted.answer != Answered::Begun && self.is_hungry());
        let wanted = wanted.map(
            |Wanted { until, before, .. }| {
                if before > 64 { until } else { until.max(self.moved + FETCH_TIME) }
            },
        );
        own.into_iter().chain(wanted).min()
    }

    /// The next thing that was said, if it does not fit, or only without being told.
    fn is_bad(&self) -> bool {
        let is_wanted = |request, so_far| {
            self.wanted.is_some_and(|wanted| wanted.request == request && wanted.answer == so_far)
        };
        match self.said.items.front() {
            Some((Item::Bad, _)) => true,
            Some((Item::Begin(_, request), _)) => request & FETCH != 0 && !is_wanted(*request, Answered::No),
            Some((Item::No(request, _), _)) => !is_wanted(*request, Answered::No),
            Some((Item::Done(request), _)) => !is_wanted(*request, Answered::Whole),
            Some((Item::Whole(..) | Item::Hello(_), _)) | None => false,
        }
    }

    /// Takes what was said without being told: frames that have no place, and last words about those that were asked for.
    fn consume(&mut self, now: Instant) {
        while self.left.is_none() && self.is_hungry() {
            match (self.said.items.front(), &self.stage) {
                (Some((Item::Done(_), _)), _) if !self.is_bad() => self.wanted = None,
                (Some((Item::Whole(..), _)), Stage::Coming(Incoming { request, place: Err(fate), .. })) => {
                    let (request, fate) = (*request, fate.clone());
                    self.whole(now, request);
                    self.done(request, &fate);
                    self.stage = Stage::Between;
                }
                _ => return,
            }
            self.said.items.pop_front();
        }
    }

    pub(super) fn announced(&mut self, now: Instant, greeting: Greeting) {
        let next = self.said.items.pop_front().map(|(item, _)| item);
        assert_eq!(next, Some(Item::Hello(greeting.clone())));
        assert!(self.left.is_none());
        (self.greeting, self.moved) = (Some(greeting), now);
    }

    pub(super) fn offered(&mut self, now: Instant, info: FrameInfo, is_fetched: bool) {
        self.consume(now);
        assert!(self.left.is_none() && !self.is_bad());
        assert!(matches!(self.stage, Stage::Between));
        let Some((Item::Begin(said, request), end)) = self.said.items.pop_front() else {
            panic!("{info:?} was not said")
        };
        assert_eq!((info, is_fetched), (said, request & FETCH != 0));
        if let Some(wanted) = &mut self.wanted {
            if is_fetched {
                wanted.answer = Answered::Begun;
            } else {
                wanted.before += 1;
            }
        }
        self.held_at = end;
        let place = Err(Fate::Had);
        let incoming = Incoming { info, request, offered: now, received: now, ended: now, place };
        self.stage = Stage::Offered(incoming);
    }

    /// The frame that is offered goes there, or nowhere. Nothing happens if none is.
    pub(super) fn place(&mut self, now: Instant, place: Result<usize, Fate>) {
        if let Stage::Offered(incoming) = &self.stage {
            self.stage = Stage::Coming(Incoming { received: now, place, ..incoming.clone() });
            self.moved = now;
        }
    }

    pub(super) fn complete(&mut self, now: Instant, frame: Received<Place>) {
        self.consume(now);
        let Stage::Coming(incoming) = &self.stage else { panic!("{frame:?} comes from nowhere") };
        let Some((Item::Whole(said, verdict), end)) = self.said.items.pop_front() else {
            panic!("{frame:?} is not complete")
        };
        let Received { info, is_fetched, place, is_whole, wire, .. } = frame;
        assert_eq!((info, is_fetched), (incoming.info, incoming.request & FETCH != 0));
        assert_eq!((Ok(place.id), is_whole), (incoming.place.clone(), verdict == 1));
        let (own, behind) = place.bytes.split_at(said.len());
        assert_eq!(own, said);
        assert!(behind.iter().all(|byte| *byte == UNTOUCHED), "it was written behind the frame");
        assert_eq!(wire, now.saturating_since(incoming.received));
        let request = incoming.request;
        if is_whole {
            self.stage = Stage::Complete(Incoming { ended: now, ..incoming.clone() });
            self.held_at = end;
        } else {
            self.stage = Stage::Between;
            self.done(request, &Fate::Skipped(TORN.into()));
        }
        self.whole(now, request);
    }

    /// What became of the frame that is complete, if one is; returns the times that it took.
    pub(super) fn settle(&mut self, now: Instant, fate: Option<Fate>) -> Option<FarTimes> {
        let Stage::Complete(Incoming { request, offered, received, ended, .. }) = self.stage else {
            return None;
        };
        let publish = received.saturating_since(offered) + now.saturating_since(ended);
        let times = FarTimes { wire_ns: nanos(ended.saturating_since(received)), publish_ns: nanos(publish) };
        self.done(request, &fate.unwrap_or(Fate::Published(times)));
        (self.stage, self.moved) = (Stage::Between, now);
        Some(times)
    }

    /// All bytes of a frame are there; if it was asked for, the last word is waited for as the frame was.
    fn whole(&mut self, now: Instant, request: u64) {
        if let Some(wanted) = self.wanted.as_mut().filter(|_| request & FETCH != 0) {
            (wanted.answer, wanted.until, wanted.before) = (Answered::Whole, now + FETCH_TIME, 0);
        }
    }

    fn done(&mut self, request: u64, fate: &Fate) {
        if request & FETCH == 0 {
            let (status, message) = match fate {
                Fate::Published(FarTimes { wire_ns, publish_ns }) => {
                    (0, format!("published wire_ns={wire_ns} publish_ns={publish_ns}"))
                }
                Fate::Had => (0, "published before".into()),
                Fate::Refused(why) => (1, cut(why, MAX_TEXT)),
                Fate::Skipped(why) => (2, cut(why, MAX_TEXT)),
                other => panic!("it can't be {other:?}"),
            };
            self.expected.push_back(Message::Done(Done { request, status, message }));
        }
    }

    pub(super) fn fetch(&mut self, now: Instant, seq: Option<u64>) {
        if self.left.is_some() {
        } else if self.greeting.is_none() || self.wanted.is_some() {
            self.refusals += 1;
        } else {
            let request = FETCH | seq.unwrap_or(0);
            self.asked = request;
            self.wanted = Some(Wanted { request, until: now + FETCH_TIME, before: 0, answer: Answered::No });
            self.expected.push_back(Message::SaveRequest(SnapshotId { request, ..SnapshotId::default() }));
        }
    }

    pub(super) fn not_fetched(&mut self, now: Instant, why: &str) {
        if self.refusals > 0 {
            self.refusals -= 1;
            return;
        }
        assert!(self.left.is_none() && self.owes(), "nothing was asked for");
        self.consume(now);
        if let Some((Item::No(_, said), _)) = self.said.items.front()
            && self.is_hungry()
            && !self.is_bad()
        {
            assert_eq!(said, why);
            self.said.items.pop_front();
        } else {
            self.must_leave = Some(self.is_late(now));
        }
        self.wanted = None;
    }

    fn is_late(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }

    /// Whether a frame that was asked for is neither there nor refused.
    fn owes(&self) -> bool {
        let is_coming = match &self.stage {
            Stage::Offered(incoming) => incoming.request & FETCH != 0,
            Stage::Coming(Incoming { request, place: Ok(_), .. }) => request & FETCH != 0,
            _ => false,
        };
        self.wanted.is_some_and(|wanted| wanted.answer == Answered::No || is_coming)
    }

    pub(super) fn leaves(
        &mut self,
        now: Instant,
        key: Option<&Key>,
        fault: Option<LinkFault>,
        place: Option<usize>,
    ) {
        self.consume(now);
        assert!(self.left.is_none(), "it leaves twice");
        assert_eq!(key, self.greeting.as_ref().map(|greeting| &greeting.key));
        assert!(!self.owes(), "nobody is told that what was asked for does not come");
        let had = match &self.stage {
            Stage::Coming(incoming) => incoming.place.clone().ok(),
            _ => None,
        };
        assert_eq!(place, had);
        let is_late = self.must_leave.take().unwrap_or_else(|| self.is_late(now));
        let is_bad = self.is_hungry() && self.is_bad();
        let fits = match (&fault, &self.ends) {
            (None, ends) => *ends == Ends::Closed,
            (Some(LinkFault::Refused(why)), ends) => *ends == Ends::Refused(why.clone()),
            (Some(LinkFault::Replaced), ends) => *ends == Ends::Replaced,
            (Some(LinkFault::Greedy), Ends::Waiting(n)) => *n > 1 << 20,
            (Some(LinkFault::Greedy), _) => self.held() > 1 << 20,
            (Some(LinkFault::NoHello), ends) => {
                key.is_none() && (is_late || is_bad || *ends == Ends::Crowded)
            }
            (Some(LinkFault::Stalled(_)), _) => key.is_some() && is_late,
            (Some(_), _) => is_bad,
        };
        assert!(fits, "it leaves with {fault:?}, and may end by {:?}", self.ends);
        self.last_word = match fault {
            Some(LinkFault::Refused(why)) => LastWord::Exactly(cut(&why, MAX_ERROR)),
            Some(LinkFault::Replaced) => LastWord::Any,
            Some(fault) if is_bad => LastWord::Exactly(cut(&fault.to_string(), MAX_ERROR)),
            _ => LastWord::None,
        };
        (self.left, self.greeting, self.stage) = (Some(now), None, Stage::Between);
        self.pending.clear();
        self.said.items.clear();
        self.wanted = None;
    }

    /// Checks what it is told.
    pub(super) fn hear(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let message = match self.decoder.next(&mut bytes) {
                Ok(Some(Decoded::Message(message))) => message,
                Ok(None) => continue,
                other => panic!("a receiver says {other:?}"),
            };
            match (self.expected.pop_front(), message) {
                (Some(expected), message) => assert_eq!(message, expected),
                (None, Message::Error(text)) => {
                    match &self.last_word {
                        LastWord::Exactly(word) => assert_eq!(text, *word),
                        word => assert_eq!(*word, LastWord::Any),
                    }
                    self.last_word = LastWord::Said;
                }
                (None, other) => panic!("a receiver says {other:?}"),
            }
        }
    }

    /// Its connection is closed from here.
    pub(super) fn closed(&self, now: Instant) {
        let Some(left) = self.left else { panic!("it is closed, and nobody was told") };
        let is_heard = self.expected.is_empty() && matches!(self.last_word, LastWord::None | LastWord::Said);
        assert!(is_heard || left + LINGER <= now, "it is not told why");
    }

    /// What holds when all that the receiver tells is told.
    pub(super) fn look(&mut self, now: Instant) {
        assert!(self.must_leave.is_none() && self.refusals == 0, "it was to leave, or to be refused a frame");
        self.consume(now);
        if self.left.is_none() {
            assert!(
                !self.is_hungry() || self.said.items.is_empty(),
                "{:?} was not told",
                self.said.items.front()
            );
            assert!(self.held() <= 1 << 20);
            assert!(matches!(self.ends, Ends::No | Ends::Waiting(_)), "it should have ended");
            self.ends = Ends::No;
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

pub(super) const UNTOUCHED: u8 = 0xEE;
pub(super) const HELLO: Duration = Duration::from_millis(50);
pub(super) const STALL: Duration = Duration::from_millis(100);
pub(super) const FETCH_TIME: Duration = Duration::from_millis(200);
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// Bytes of the text of an ERROR.
const MAX_ERROR: usize = 511;
