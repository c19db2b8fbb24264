//! A sender of a stream, beside a model of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cuframes_bridge::stream::{Announcement, Answer, FrameInfo, Sender, SenderConfig};
use cuframes_bridge::wire::{Chunk, Done, FrameType, Header, Message, SnapshotId};
use cuframes_core::streams::{Action, ConnId, Machine as _};
use cuframes_core::{Instant, Policy, RingSize};

use super::super::Script;
use super::frames::{FETCH, begin, bytes, encoded, info, meta, reason};
use super::heard::Frame;
use super::sender_model::{End, Model};

/// A sender whose receiver and whose owner do anything at any time. What it says can be understood and is right: HELLO, then the
/// frames that were not answered, in the order in which they were given, with their bytes and whether they were overwritten
/// meanwhile, and what was asked for on this connection. It tells what a model of it tells, in the same order, and has the same
/// figures and deadlines. Each frame is answered or given up, none of a strict sender before the end; and it ends in time.
///
/// The first byte says whether it is strict, and how many frames may be under way; then come steps, whose lower three bits say
/// what is done: the connection is made or lost, the receiver says a word, or bytes, or reads, time passes, a frame is given,
/// the owner does something else, what was said arrives.
pub fn bridge_sender(data: &[u8]) {
    let mut script = Script(data);
    let mut scene = Scene::new(script.byte());
    scene.look();
    while let Some(step) = script.next() {
        scene.step(step, &mut script);
        scene.look();
    }
    scene.end();
}

struct Scene {
    sender: Sender<Frame>,
    model: Model,
    now: Instant,
    /// All that it ever got.
    frames: Vec<Frame>,
    last_seq: u64,
}

impl Scene {
    fn new(options: u8) -> Self {
        let mut config = SenderConfig::new("there");
        config.strict = !options.is_multiple_of(2);
        config.window = usize::from(options / 2 % 4);
        config.stall = Duration::from_millis(500);
        let announcement = Announcement {
            key: "cam0".parse().unwrap(),
            meta: meta(),
            policy: Policy::DROP_OLDEST,
            ring_size: RingSize::new(4).unwrap(),
            strict: config.strict,
        };
        Self {
            sender: Sender::new(START, config.clone(), announcement.clone()),
            model: Model::new(START, config, announcement),
            now: START,
            frames: Vec::new(),
            last_seq: 0,
        }
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let argument = step >> 3;
        match step % 8 {
            0 => self.connection(argument),
            1 => {
                let said = self.word(script.byte(), script.byte());
                self.say(&said);
                self.arrive(if argument == 0 { usize::MAX } else { argument.into() });
            }
            2 => {
                let len = script.byte();
                self.say(script.take(len));
                self.arrive(usize::MAX);
            }
            3 => {
                let most = script.byte();
                for _ in 0..=argument / 4 {
                    self.read(usize::from(argument % 4), if most == 255 { usize::MAX } else { most.into() });
                }
            }
            4 => self.pass(argument),
            5 => self.give(argument, script.byte()),
            6 => self.own(argument, script.byte()),
            _ => self.arrive(usize::from(argument) + 1),
        }
        self.settle();
    }

    /// The connection that is wanted is there, or can't be made; the one that is there is lost; or something is said about
    /// another one.
    fn connection(&mut self, argument: u8) {
        self.model.told = self.now;
        let is_even = argument.is_multiple_of(2);
        match (self.model.attempt, self.model.link.as_ref().map(|link| link.conn)) {
            (Some(conn), _) if is_even => {
                self.model.connected(conn);
                self.sender.handle_connected(self.now, conn);
            }
            (_, Some(conn)) if is_even => {
                self.sender.handle_connected(self.now, conn);
                let other = ConnId::new(conn.get().wrapping_add_signed(i64::from(argument) - 5));
                self.sender.handle_connected(self.now, other);
                self.sender.handle_bytes(self.now, other, &[1; 20]);
                self.sender.transmitted(other, 7);
                self.sender.handle_eof(self.now, other);
                assert_eq!(self.sender.poll_transmit(other), None);
            }
            (attempt, link) => {
                if let Some(conn) = attempt.or(link) {
                    self.model.lost(None);
                    self.sender.handle_eof(self.now, conn);
                    assert_eq!(self.sender.poll_transmit(conn), None);
                }
            }
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        if let Some(link) = &mut self.model.link {
            link.pending.extend(bytes);
        }
    }

    /// So many bytes of what the receiver has said arrive.
    fn arrive(&mut self, most: usize) {
        let Some(link) = &mut self.model.link else { return };
        let conn = link.conn;
        let bytes: Vec<u8> = link.pending.drain(..most.min(link.pending.len())).collect();
        self.model.told = self.now;
        self.model.understand(&bytes);
        self.sender.handle_bytes(self.now, conn, &bytes);
    }

    /// Reads from the connection, of so many parts.
    fn read(&mut self, parts: usize, most: usize) {
        let Some(link) = &mut self.model.link else { return };
        let conn = link.conn;
        let first = self.sender.poll_transmit(conn);
        let mut lent: [&[u8]; 3] = [&[]; 3];
        let lent = lent.get_mut(..parts).unwrap();
        let n = self.sender.poll_transmit_vectored(conn, lent);
        let lent = lent.get(..n).unwrap();
        assert!(lent.iter().all(|part| !part.is_empty()));
        assert!(parts == 0 || lent.first().copied() == first);
        let lent = if parts == 0 { first.unwrap_or_default().to_vec() } else { lent.concat() };
        let bytes = lent.get(..most.min(lent.len())).unwrap();
        let answered = link.hear(&self.model.flights, bytes);
        self.sender.transmitted(conn, bytes.len());
        self.model.sent(bytes.len(), answered);
        self.settle();
        let is_empty = self.sender.poll_transmit(conn).is_none();
        if let Some(link) = self.model.link.as_mut().filter(|_| is_empty) {
            link.is_told = false;
        }
    }

    fn pass(&mut self, argument: u8) {
        self.now = self.now + Duration::from_millis((10 << (argument / 4)) - 10);
        match argument % 4 {
            0 | 1 => self.time_out(),
            2 => {
                self.model.told = self.now;
                self.sender.note_time(self.now);
            }
            _ => {}
        }
    }

    fn time_out(&mut self) {
        self.model.told = self.now;
        self.model.time_out();
        self.sender.handle_timeout(self.now);
        assert!(self.sender.poll_timeout().is_none_or(|at| at > self.now));
    }

    fn give(&mut self, argument: u8, number: u8) {
        self.last_seq = match number {
            0..200 => self.last_seq + 1 + u64::from(number % 2),
            _ => u64::from(number % 8 + 1),
        };
        let ago = match number / 2 % 4 {
            0 => START.as_nanos(),
            1 => -1_000_000,
            2 => 2 * 3_600_000_000_000,
            _ => 5_000_000,
        };
        let frame = self.frame(self.last_seq, usize::from(argument) * 8, number & 16 == 0);
        // What the owner says of its length does not count.
        let info = info(self.last_seq, number.into(), self.now.as_nanos() - ago);
        let has_room = self.model.has_room();
        assert_eq!(self.sender.has_room(), has_room);
        self.model.told = self.now;
        assert_eq!(self.sender.send(self.now, info, frame.clone()).is_ok(), has_room);
        if has_room {
            self.model.send(info, frame);
        }
    }

    fn frame(&mut self, seed: u64, len: usize, is_intact: bool) -> Frame {
        let frame = Frame { bytes: bytes(seed, len).into(), is_intact: Rc::new(Cell::new(is_intact)) };
        self.frames.push(frame.clone());
        frame
    }

    /// The owner does something else.
    fn own(&mut self, argument: u8, number: u8) {
        let seq = self.model.asked.flatten();
        match argument % 8 {
            0 => {
                let info = info(seq.unwrap_or_else(|| u64::from(number) + 1), 0, 7);
                let frame = self.frame(info.seq, number.into(), number & 16 == 0);
                self.answer(seq, Ok((info, frame)));
            }
            1 => self.answer(seq, Err(reason(number))),
            2 => self.answer(Some(77), Err(reason(number))),
            3 => {
                self.model.announcement.ring_size = RingSize::new(u64::from(number % 3 + 3)).unwrap();
                let ring_size = self.model.announcement.ring_size;
                if let Some(link) = &mut self.model.link {
                    link.was_other |= link.ring_size() != ring_size;
                }
                self.sender.announce(self.model.announcement.clone());
            }
            4..7 => {
                if let Some(frame) = self.frames.iter().rev().nth(usize::from(number % 4)) {
                    frame.is_intact.set(false);
                }
            }
            _ if argument == 31 => self.finish(Duration::from_millis(4 * u64::from(number))),
            _ => self.time_out(),
        }
    }

    fn answer(&mut self, seq: Option<u64>, answer: Result<(FrameInfo, Frame), String>) {
        self.model.told = self.now;
        self.model.answer(seq, answer.clone());
        let answer = match answer {
            Ok((info, frame)) => Answer::Frame(info, frame),
            Err(why) => Answer::No(why),
        };
        self.sender.answer(self.now, seq, answer);
    }

    fn finish(&mut self, patience: Duration) {
        self.model.finish(self.now, patience);
        self.sender.finish(self.now, patience);
    }

    /// What follows by itself.
    fn settle(&mut self) {
        let sender = &self.sender;
        let load = FrameType::LOAD_BEGIN.0.to_be_bytes();
        self.model.begin(|conn| sender.poll_transmit(conn).and_then(|bytes| bytes.get(4..8)) == Some(&load));
        self.model.settle();
    }

    /// What holds after every step.
    fn look(&mut self) {
        let Self { sender, model, .. } = self;
        while let Some(event) = sender.poll_event() {
            assert_eq!(Some(event), model.events.pop_front());
        }
        assert_eq!(model.events, []);
        while let Some(action) = sender.poll_action() {
            match action {
                Action::Connect { conn, address, delay } => {
                    assert_eq!((address.as_str(), Some(delay)), ("there", model.connects.take()));
                    assert!(model.attempt.is_none() && model.link.is_none(), "two connections");
                    model.attempt = Some(conn);
                }
                Action::Close(conn) => {
                    assert_eq!(model.closes.take(), Some(conn));
                    assert_eq!(sender.poll_transmit(conn), None);
                }
                Action::Transmit(conn) => {
                    if let Some(link) = model.link.as_mut().filter(|link| link.conn == conn) {
                        link.is_told = true;
                    }
                }
                other => panic!("a sender wants {other:?}"),
            }
        }
        assert_eq!((model.connects, model.closes), (None, None));
        assert_eq!(sender.is_finished(), model.end == End::Over);
        assert_eq!(model.attempt.is_some() || model.link.is_some(), model.end != End::Over);
        assert_eq!(sender.is_connected(), model.link.is_some());
        if let Some(link) = &model.link {
            let has_bytes = sender.poll_transmit(link.conn).is_some();
            assert!(link.is_told || !has_bytes, "nobody is told that there is something to be sent");
            // The next frame waits where another ring is to be said first.
            let waits = link.was_other && (link.sent > 0 || model.asked.is_some());
            assert!(has_bytes == link.is_busy() && (has_bytes || link.sent == model.flights.len() || waits));
            assert_eq!(sender.is_answering(), link.is_answering());
        }
        let (stats, under_way) = (sender.stats(), sender.under_way());
        assert_eq!((stats, under_way), (model.stats, model.flights.len()));
        assert!(under_way <= model.config.window.max(1));
        let ended = stats.delivered + stats.refused + stats.given_up;
        assert_eq!(ended + u64::try_from(under_way).unwrap(), model.given);
        assert!(!model.config.strict || model.end == End::Over || stats.given_up == 0);
        let end = if let End::At(end) = model.end { Some(end) } else { None };
        assert_eq!(sender.poll_timeout(), end.into_iter().chain(model.stalls_at()).min());
    }

    /// Everything ends.
    fn end(&mut self) {
        self.finish(Duration::from_secs(1));
        self.settle();
        self.look();
        if let End::At(end) = self.model.end {
            self.now = self.now.max(end);
            self.time_out();
            self.look();
        }
        assert!(self.sender.is_finished() && self.sender.under_way() == 0);
        assert_eq!(self.sender.poll_timeout(), None);
    }

    /// One of the things that a receiver says, right or wrong.
    fn word(&self, kind: u8, number: u8) -> Vec<u8> {
        let mut due = self.model.flights.iter().map(|flight| flight.info.seq);
        let first = due.next().unwrap_or_else(|| number.into());
        let done =
            |request, status, text: &str| Message::Done(Done { request, status, message: text.into() });
        let ask = |request| Message::SaveRequest(SnapshotId { request, ..SnapshotId::default() });
        let times = format!("published wire_ns={number} publish_ns={}", u64::MAX - u64::from(number));
        let message = match kind % 16 {
            0 => done(first, 0, &times),
            1 => done(first, 0, "published before"),
            2 => done(first, 2, &reason(number)),
            3 => done(first, 1, &reason(number)),
            4 => done(first, number.into(), "published"),
            5 => {
                let both = [done(first, 0, &times), done(due.next().unwrap_or(first), 0, "published before")];
                return both.iter().flat_map(encoded).collect();
            }
            6 => done(first + u64::from(number % 4), 0, &times),
            7 | 8 => ask(FETCH | u64::from(number % 4)),
            9 => return encoded(&ask(FETCH | u64::from(number % 4))).repeat(usize::from(number % 32)),
            10 => ask(number.into()),
            11 => Message::Error(reason(number)),
            12 => Message::LoadBegin(begin(&info(1, 3, 1), first)),
            13 => Message::Chunk(Chunk { request: first, bytes: number.into() }),
            14 => Message::Begin(begin(&info(1, 3, 1), FETCH | first)),
            _ => {
                let header = Header { kind: FrameType(number.into()), bytes: u32::from(number % 4) };
                return [&header.encode()[..], &vec![0; usize::from(number % 4)]].concat();
            }
        };
        encoded(&message)
    }
}

/// Late enough for a time stamp of another clock.
const START: Instant = Instant::from_nanos(20_000_000_000_000);
