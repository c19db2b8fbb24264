//! [`World`]: a sender, a receiver, and a connection between them that can be cut anywhere.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use cuframes_bridge::stream::{
    Announcement, Fate, FrameInfo, Received, Receiver, ReceiverConfig, ReceiverEvent, Sender, SenderConfig,
    SenderEvent,
};
use cuframes_core::streams::{Action, ConnId, Machine};
use cuframes_core::{Format, FrameMeta, Instant, Policy, RingSize};

/// A place for a frame, longer than it: what is behind must stay as it is.
pub(crate) type Place = Vec<u8>;

/// What the far side has published.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Published {
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    pub(crate) pts_ns: i64,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) sender: Sender<Vec<u8>>,
    pub(crate) receiver: Receiver<Place>,
    /// The connection: as the sender calls it, and as the receiver does.
    pub(crate) link: Option<(ConnId, ConnId)>,
    /// Nobody is there who could be connected to.
    pub(crate) is_cut: bool,
    pub(crate) wanted: Option<(ConnId, Instant)>,
    /// How many bytes the next reads and writes take, over and over.
    pub(crate) cuts: Vec<usize>,
    turn: usize,
    to_receiver: VecDeque<u8>,
    to_sender: VecDeque<u8>,
    pub(crate) sent: Vec<SenderEvent>,
    pub(crate) received: Vec<ReceiverEvent<Place>>,
    pub(crate) published: Vec<Published>,
    /// Offers are left alone.
    pub(crate) is_busy: bool,
    pub(crate) offered: Option<(ConnId, FrameInfo)>,
    /// Bytes that may be on the way to the receiver: a socket's buffer.
    pub(crate) buffer: usize,
}

pub(crate) fn meta() -> FrameMeta {
    FrameMeta::new(Format::GRAY8, 256, 3).unwrap()
}

pub(crate) fn announcement(strict: bool) -> Announcement {
    Announcement {
        key: "cam0".parse().unwrap(),
        meta: meta(),
        policy: Policy::DROP_OLDEST,
        ring_size: RingSize::new(4).unwrap(),
        strict,
    }
}

/// Frame `seq` of publisher `epoch`: each of its bytes says which it is.
pub(crate) fn frame(epoch: u64, seq: u64) -> (FrameInfo, Vec<u8>) {
    let bytes: Vec<u8> = (0..768_u64).map(|i| ((seq * 7 + epoch * 13 + i) % 251) as u8).collect();
    let info = FrameInfo {
        epoch,
        seq,
        meta: meta(),
        pts_ns: seq as i64 * 1000,
        written_bytes: 0,
        policy: Policy::DROP_OLDEST,
        before_ns: 0,
    };
    (info, bytes)
}

pub(crate) fn published(epoch: u64, seq: u64) -> Published {
    let (info, bytes) = frame(epoch, seq);
    Published { epoch, seq, pts_ns: info.pts_ns, bytes }
}

impl World {
    pub(crate) fn new(config: SenderConfig) -> Self {
        let strict = config.strict;
        let now = Instant::from_nanos(1_000_000_000_000);
        Self {
            now,
            sender: Sender::new(now, config, announcement(strict)),
            receiver: Receiver::new(ReceiverConfig::default()),
            link: None,
            is_cut: false,
            wanted: None,
            cuts: vec![usize::MAX],
            turn: 0,
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            sent: Vec::new(),
            received: Vec::new(),
            published: Vec::new(),
            is_busy: false,
            offered: None,
            buffer: usize::MAX,
        }
    }

    pub(crate) fn strict(window: usize) -> Self {
        let mut config = SenderConfig::new("there");
        (config.strict, config.window) = (true, window);
        Self::new(config)
    }

    pub(crate) fn send(&mut self, epoch: u64, seq: u64) -> bool {
        let (info, bytes) = frame(epoch, seq);
        self.sender.send(self.now, info, bytes).is_ok()
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.actions();
        self.now = self.now + time;
        self.sender.handle_timeout(self.now);
        self.receiver.handle_timeout(self.now);
        self.run();
    }

    /// The connection breaks: what is on the way is lost.
    pub(crate) fn cut(&mut self) {
        self.to_receiver.clear();
        self.to_sender.clear();
        if let Some((near, far)) = self.link.take() {
            self.sender.handle_eof(self.now, near);
            self.receiver.handle_eof(self.now, far);
        }
        let was_cut = mem::replace(&mut self.is_cut, true);
        self.actions();
        self.events();
        self.is_cut = was_cut;
    }

    /// Another receiver takes the place of this one, which knows nothing.
    pub(crate) fn restart_receiver(&mut self) {
        self.cut();
        self.receiver = Receiver::new(ReceiverConfig::default());
    }

    /// How many bytes now.
    fn piece(&mut self) -> usize {
        self.turn += 1;
        self.cuts[self.turn % self.cuts.len()].max(1)
    }

    /// Goes on until nothing moves any more.
    pub(crate) fn run(&mut self) {
        while self.step() {}
    }

    /// Whether anything moved.
    pub(crate) fn step(&mut self) -> bool {
        let mut moved = self.actions();
        moved |= self.transmit();
        moved |= self.deliver();
        moved |= self.events();
        moved
    }

    pub(crate) fn actions(&mut self) -> bool {
        let mut moved = false;
        while let Some(action) = self.sender.poll_action() {
            moved = true;
            match action {
                Action::Connect { conn, delay, .. } => self.wanted = Some((conn, self.now + delay)),
                Action::Close(near) => {
                    self.wanted = self.wanted.filter(|(conn, _)| *conn != near);
                    if let Some((_, far)) = self.link.filter(|(conn, _)| *conn == near) {
                        self.link = None;
                        self.to_sender.clear();
                        self.to_receiver.clear();
                        self.receiver.handle_eof(self.now, far);
                    }
                }
                _ => {}
            }
        }
        while let Some(action) = self.receiver.poll_action() {
            moved = true;
            if let Action::Close(far) = action
                && let Some((near, _)) = self.link.filter(|(_, conn)| *conn == far)
            {
                // What was said before the end arrives.
                let words: Vec<u8> = self.to_sender.drain(..).collect();
                self.sender.handle_bytes(self.now, near, &words);
                self.link = None;
                self.to_receiver.clear();
                self.sender.handle_eof(self.now, near);
            }
        }
        if let Some((near, at)) = self.wanted
            && at <= self.now
            && !self.is_cut
            && let Some(far) = self.receiver.handle_accepted(self.now, 0)
        {
            self.wanted = None;
            self.link = Some((near, far));
            self.sender.handle_connected(self.now, near);
            moved = true;
        }
        moved
    }

    fn transmit(&mut self) -> bool {
        let Some((near, far)) = self.link else { return false };
        let mut moved = false;
        let room = self.piece().min(self.buffer.saturating_sub(self.to_receiver.len()));
        let mut parts: [&[u8]; 3] = [&[]; 3];
        let n = self.sender.poll_transmit_vectored(near, &mut parts);
        let bytes: Vec<u8> = parts[..n].concat().into_iter().take(room).collect();
        if !bytes.is_empty() {
            self.sender.transmitted(near, bytes.len());
            self.to_receiver.extend(bytes);
            moved = true;
        }
        let piece = self.piece();
        if let Some(bytes) = self.receiver.poll_transmit(far) {
            let bytes = bytes[..bytes.len().min(piece)].to_vec();
            self.receiver.transmitted(far, bytes.len());
            self.to_sender.extend(bytes);
            moved = true;
        }
        moved
    }

    fn deliver(&mut self) -> bool {
        let mut moved = false;
        if let Some((_, far)) = self.link
            && self.receiver.is_hungry(far)
            && !self.to_receiver.is_empty()
        {
            moved = true;
            let piece = self.piece().min(self.to_receiver.len());
            if let Some(place) = self.receiver.poll_receive(far) {
                let n = piece.min(place.len());
                for (to, from) in place.iter_mut().zip(self.to_receiver.drain(..n)) {
                    *to = from;
                }
                self.receiver.received(self.now, far, n);
            } else {
                let bytes: Vec<u8> = self.to_receiver.drain(..piece).collect();
                self.receiver.handle_bytes(self.now, far, &bytes);
            }
        }
        if let Some((near, _)) = self.link
            && !self.to_sender.is_empty()
        {
            moved = true;
            let piece = self.piece().min(self.to_sender.len());
            let bytes: Vec<u8> = self.to_sender.drain(..piece).collect();
            self.sender.handle_bytes(self.now, near, &bytes);
        }
        moved
    }

    /// Does what the owner of a receiver does.
    fn events(&mut self) -> bool {
        let mut moved = false;
        while let Some(event) = self.sender.poll_event() {
            moved = true;
            self.sent.push(event);
        }
        while let Some(event) = self.receiver.poll_event() {
            moved = true;
            match event {
                ReceiverEvent::Offered { conn, info, .. } if self.is_busy => {
                    self.offered = Some((conn, info));
                }
                ReceiverEvent::Offered { conn, info, is_fetched } => self.take(conn, &info, is_fetched),
                ReceiverEvent::Complete { conn, frame } => self.complete(conn, frame),
                event => self.received.push(event),
            }
        }
        moved
    }

    /// Gives the frame that is offered a place.
    pub(crate) fn take(&mut self, conn: ConnId, info: &FrameInfo, is_fetched: bool) {
        let newest =
            self.published.iter().filter(|frame| frame.epoch == info.epoch).map(|frame| frame.seq).max();
        if !is_fetched && newest.is_some_and(|newest| info.seq <= newest) {
            self.receiver.skip(self.now, conn, Fate::Had);
        } else {
            let place = vec![0xEE; usize::try_from(info.written_bytes).unwrap() + 9];
            self.receiver.receive(self.now, conn, place).unwrap();
        }
    }

    fn complete(&mut self, conn: ConnId, frame: Received<Place>) {
        let Received { info, mut place, is_whole, .. } = frame;
        assert_eq!(place.split_off(place.len() - 9), [0xEE; 9], "it was written behind the frame");
        if is_whole {
            self.published.push(Published {
                epoch: info.epoch,
                seq: info.seq,
                pts_ns: info.pts_ns,
                bytes: place,
            });
            self.receiver.settle(self.now, conn, None).unwrap();
        }
    }

    pub(crate) fn fates(&self) -> Vec<(u64, Fate)> {
        let done = self.sent.iter().filter_map(|event| match event {
            SenderEvent::Done { seq, fate, .. } => Some((*seq, fate.clone())),
            _ => None,
        });
        done.collect()
    }
}
