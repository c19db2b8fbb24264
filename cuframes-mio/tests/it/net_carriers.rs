//! Bytes that are moved in another way than over the socket that was connected, or in odd pieces, under the same machines.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cuframes_dispatch::wire::{Roi, Version};
use cuframes_dispatch::{
    BlockEvent, Fit, Grid, Outcome, Server, ServerEvent, TaskConfig, Worker, WorkerConfig, WorkerEvent,
};
use cuframes_mio::core::Instant;
use cuframes_mio::core::streams::ConnId;
use cuframes_mio::net::{Carrier, Driver, Endpoint, Keepalive, Listeners, Plain, Side, SocketOptions};
use cuframes_mio::{EventSource as _, Pollable, now};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};

use crate::bulk::{Bulk, Told, Way, World, frame};
use crate::common::until;

/// Moves a few bytes at a time, and none of them as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trickle {
    pub(crate) most: usize,
}

impl Carrier for Trickle {
    type Socket = OwnedFd;

    fn carry(&mut self, socket: OwnedFd, side: Side) -> io::Result<OwnedFd> {
        Plain.carry(socket, side)
    }

    fn send(&mut self, socket: &mut OwnedFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = parts.iter().flat_map(|part| part.iter());
        let bytes: Vec<u8> = bytes.take(self.most).map(|byte| byte ^ KEY).collect();
        Plain.send(socket, &[IoSlice::new(&bytes)])
    }

    fn recv(&mut self, socket: &mut OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(self.most);
        let n = Plain.recv(socket, &mut buffer[..len])?;
        buffer[..n].iter_mut().for_each(|byte| *byte ^= KEY);
        Ok(n)
    }
}

const KEY: u8 = 0x5a;

/// Moves them over other sockets: who accepts a connection makes a pair, and passes one of them to the peer.
#[derive(Clone, Copy, Debug)]
struct Detour;

#[derive(Debug)]
struct Road {
    way: OwnedFd,
    is_there: bool,
}

impl AsFd for Road {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.way.as_fd()
    }
}

impl Carrier for Detour {
    type Socket = Road;

    fn carry(&mut self, socket: OwnedFd, side: Side) -> io::Result<Road> {
        if side == Side::Connected {
            return Ok(Road { way: socket, is_there: false });
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (way, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [theirs.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&socket, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)?;
        Ok(Road { way, is_there: true })
    }

    fn open(&mut self, road: &mut Road) -> io::Result<bool> {
        if !road.is_there {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let received =
                recvmsg(&road.way, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC);
            let received = match received.map_err(io::Error::from) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                received => received?,
            };
            if received.bytes == 0 || byte != *b"!" {
                return Err(io::ErrorKind::InvalidData.into());
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    // The first socket goes.
                    fds.for_each(|fd| road.way = fd);
                    road.is_there = true;
                }
            }
        }
        Ok(road.is_there)
    }

    fn send(&mut self, road: &mut Road, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Plain.send(&mut road.way, parts)
    }

    fn recv(&mut self, road: &mut Road, buffer: &mut [u8]) -> io::Result<usize> {
        Plain.recv(&mut road.way, buffer)
    }
}

/// Keeps a copy of each socket.
#[derive(Clone, Default, Debug)]
struct Watched(Arc<Mutex<Vec<(Side, OwnedFd)>>>);

impl Carrier for Watched {
    type Socket = OwnedFd;

    fn carry(&mut self, socket: OwnedFd, side: Side) -> io::Result<OwnedFd> {
        self.0.lock().unwrap().push((side, socket.try_clone()?));
        Ok(socket)
    }

    fn send(&mut self, socket: &mut OwnedFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Plain.send(socket, parts)
    }

    fn recv(&mut self, socket: &mut OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        Plain.recv(socket, buffer)
    }
}

/// A peer that takes everything, and always has something to say.
#[derive(Clone, Copy, Debug)]
struct Endless;

impl Carrier for Endless {
    type Socket = OwnedFd;

    fn carry(&mut self, socket: OwnedFd, side: Side) -> io::Result<OwnedFd> {
        Plain.carry(socket, side)
    }

    fn send(&mut self, _: &mut OwnedFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(parts.iter().map(|part| part.len()).sum())
    }

    fn recv(&mut self, _: &mut OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
        // Frames of 16 MiB.
        buffer.fill(1);
        Ok(buffer.len())
    }
}

#[test]
fn it_makes_no_difference_where_the_bytes_are_cut() {
    let frames: Vec<_> = (0..30).map(|n| frame(n, n * n % 23)).collect();
    let all: usize = frames.iter().map(|frame| frame.len() + 4).sum();
    for most in 1..=40 {
        let mut world = World::new(Way::Unix, usize::MAX, SocketOptions::default(), || Trickle { most });
        world.connecting.command(|bulk, _| bulk.piece = 3).unwrap();
        world.send(&frames);
        world.until_frames(frames.len());
        assert!(world.frames() == frames, "{most} bytes at a time: other frames came");
        let receiver = world.listening.get_ref().machine();
        assert_eq!(receiver.straight + receiver.by_way, all);
        assert_eq!(world.connecting.get_ref().machine().parts.get(), 16);
    }
}

#[test]
fn a_carrier_may_change_every_byte_on_the_way() {
    let mut world = World::new(Way::Unix, usize::MAX, SocketOptions::default(), || Trickle { most: 7 });
    let Endpoint::Ipc(path) = world.endpoint.clone() else { panic!("no path") };
    let mut peer = UnixStream::connect(path).unwrap();
    peer.write_all(&[3, 0, 0, 0, 1, 2, 3].map(|byte| byte ^ KEY)).unwrap();
    world.until_frames(1);
    assert_eq!(world.frames(), [[1, 2, 3]]);
    let Some(Told::Accepted(conn)) = world.heard.first().cloned() else { panic!("nobody came") };
    world.listening.command(|bulk, _| bulk.send(conn, vec![9; 20])).unwrap();
    let mut wire = [0; 24];
    peer.read_exact(&mut wire).unwrap();
    assert_eq!(wire[..4], [20 ^ KEY, KEY, KEY, KEY]);
    assert!(wire[4..].iter().all(|byte| *byte == 9 ^ KEY));
}

#[test]
fn a_carrier_may_move_them_over_another_descriptor() {
    let mut world = World::new(Way::Unix, 1, SocketOptions::default(), || Detour);
    let frames: Vec<_> = (0..20).map(|n| frame(n, 300_000)).collect();
    let conn = world.send(&frames);
    for count in 1..=frames.len() {
        world.until_frames(count);
        world.listening.command(|bulk, _| bulk.release()).unwrap();
        world.hear();
    }
    assert!(world.frames() == frames, "other frames came");
    world.connecting.command(|bulk, _| bulk.close(conn)).unwrap();
    until("the end", || {
        world.turn();
        matches!(world.heard.last(), Some(Told::Ended(_)))
    });
}

#[test]
fn the_machine_hears_of_a_connection_when_the_carrier_is_done_and_a_failure_is_one_to_connect() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let endpoint = Endpoint::from(path.as_path());
    let driver = Driver::with_carrier(Bulk::new(1), Listeners::default(), Detour);
    let mut driver = Pollable::new(driver).unwrap();
    driver.command(|bulk, _| _ = bulk.connect(&endpoint)).unwrap();
    let trouble = |driver: &Pollable<Driver<Bulk, Detour>>| {
        driver.get_ref().trouble().map(|(at, error)| (at.clone(), error.kind()))
    };
    // One that says the wrong thing, and one that goes.
    let peer = |driver: &mut Pollable<Driver<Bulk, Detour>>| {
        let mut peer = None;
        listener.set_nonblocking(true).unwrap();
        until("an attempt", || {
            let _ = driver.turn().unwrap();
            peer = listener.accept().ok();
            peer.is_some()
        });
        peer.unwrap().0
    };
    for what in [&b"?"[..], b""] {
        peer(&mut driver).write_all(what).unwrap();
        until("a failure", || {
            let _ = driver.turn().unwrap();
            trouble(&driver).is_some()
        });
        assert_eq!(trouble(&driver), Some((endpoint.clone(), io::ErrorKind::InvalidData)));
    }
    let right = Detour.carry(peer(&mut driver).into(), Side::Accepted).unwrap();
    assert_eq!(driver.with(Driver::poll_event).unwrap(), None);
    let mut heard = None;
    until("the connection", || {
        heard = driver.poll_within(Some(Duration::ZERO), Driver::poll_event).unwrap();
        heard.is_some()
    });
    assert_eq!(heard, Some(Told::Connected(ConnId::new(1))));
    assert_eq!(trouble(&driver), None);
    drop(right);
}

#[test]
fn a_machine_that_was_made_for_sockets_works_over_any_carrier() {
    let carrier = Trickle { most: 5 };
    let mut server = Server::new(Version::W2);
    let grid = Grid::new(Roi::new(&[0], &[100]), Roi::new(&[0], &[10]), Roi::new(&[0], &[10]), Fit::Valid);
    let filled = server.schedule(now(), |scheduler| {
        scheduler.add_task(TaskConfig::new("count"))?;
        grid.unwrap().blocks("count").try_for_each(|block| scheduler.add_block(block, &[]))?;
        scheduler.close_task("count")
    });
    filled.unwrap();
    let listeners = Listeners::new([&"tcp://127.0.0.1:0".parse().unwrap()]).unwrap();
    let address = listeners.endpoints().next().unwrap().to_string();
    let mut server = Pollable::new(Driver::with_carrier(server, listeners, carrier)).unwrap();
    let worker = Worker::new(now(), WorkerConfig::new(address, "count"));
    let mut worker = Pollable::new(Driver::with_carrier(worker, Listeners::default(), carrier)).unwrap();
    let mut done = 0;
    until("all blocks", || {
        if let Some(WorkerEvent::Block { block, .. }) = worker.next_event(Some(Duration::ZERO)).unwrap() {
            assert!(worker.command(|worker, now| worker.done(now, &block.block_id, None)).unwrap());
        }
        let event = server.next_event(Some(Duration::ZERO)).unwrap();
        let is_success = |event: &ServerEvent| {
            matches!(event, ServerEvent::Block(BlockEvent::Ended { outcome: Outcome::Success, .. }))
        };
        done += usize::from(event.is_some_and(|event| is_success(&event)));
        server.get_ref().machine().scheduler().is_finished()
    });
    while let Some(event) = server.with(Driver::poll_event).unwrap() {
        done += usize::from(matches!(
            event,
            ServerEvent::Block(BlockEvent::Ended { outcome: Outcome::Success, .. })
        ));
    }
    assert_eq!(done, 10);
}

#[test]
fn a_peer_that_takes_and_says_everything_waits_until_the_others_had_theirs() {
    const BUDGET: usize = 4 << 20;
    let mut world = World::new(Way::Unix, usize::MAX, SocketOptions::default(), || Endless);
    let conns = [world.send(&[]), world.send(&[])];
    let mut connected = 0;
    until("both connections", || {
        let told = world.connecting.next_event(Some(Duration::ZERO)).unwrap();
        connected += usize::from(matches!(told, Some(Told::Connected(_))));
        connected == 2
    });
    let moved = |world: &World<Endless>| {
        let bulk = world.connecting.get_ref().machine();
        (bulk.sent, bulk.straight + bulk.by_way)
    };
    let payload: Arc<[u8]> = vec![7; 10 << 20].into();
    for conn in conns {
        let before = moved(&world);
        world.connecting.command(|bulk, _| bulk.send(conn, payload.clone())).unwrap();
        assert_eq!(moved(&world), (before.0 + BUDGET, before.1));
    }
    // The rest at once, but in turns, without an event of the socket.
    for _ in 0..2 {
        assert_eq!(world.connecting.get_ref().poll_timeout(), Some(Instant::ZERO));
        let before = moved(&world);
        world.connecting.with(|driver| driver.handle_timeout(now())).unwrap();
        let (sent, received) = (moved(&world).0 - before.0, moved(&world).1 - before.1);
        assert!((BUDGET + 1..=2 * BUDGET).contains(&sent), "{sent} bytes");
        assert!((BUDGET + 1..2 * (BUDGET + (1 << 20))).contains(&received), "{received} bytes");
    }
    assert!(world.connecting.get_ref().machine().is_sent());
}

#[test]
fn the_options_of_sockets_are_those_that_were_chosen() {
    let mut options = SocketOptions::default();
    options.nodelay = false;
    options.keepalive = Some(Keepalive::new(Duration::from_millis(6500), Duration::from_secs(3), 4));
    options.send_buffer = Some(48 << 10);
    options.receive_buffer = Some(40 << 10);
    options.user_timeout = Some(Duration::from_micros(1500));
    for way in [Way::Tcp, Way::Unix] {
        for (socket, side) in sockets(way, options) {
            let seconds = Duration::from_secs;
            // The system doubles these.
            assert_eq!(sockopt::socket_send_buffer_size(&socket).unwrap(), 96 << 10, "{way:?} {side:?}");
            assert_eq!(sockopt::socket_recv_buffer_size(&socket).unwrap(), 80 << 10, "{way:?} {side:?}");
            if way == Way::Tcp {
                assert!(!sockopt::tcp_nodelay(&socket).unwrap());
                assert!(sockopt::socket_keepalive(&socket).unwrap());
                assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), seconds(7));
                assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), seconds(3));
                assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), 4);
                assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 2);
            }
        }
    }
    for (socket, _) in sockets(Way::Tcp, SocketOptions::default()) {
        assert!(sockopt::tcp_nodelay(&socket).unwrap());
        assert!(!sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 0);
    }
}

#[test]
fn options_that_the_system_does_not_accept_are_refused() {
    let refused = |change: fn(&mut SocketOptions)| {
        let mut options = SocketOptions::default();
        change(&mut options);
        Driver::new(Bulk::new(1), Listeners::default()).socket_options(options).is_err()
    };
    assert!(!refused(|_| {}));
    assert!(refused(|options| options.keepalive = Some(Keepalive::new(Duration::ZERO, SECOND, 1))));
    assert!(refused(|options| options.keepalive = Some(Keepalive::new(SECOND, SECOND, 0))));
    assert!(refused(|options| options.keepalive = Some(Keepalive::new(SECOND, 40_000 * SECOND, 1))));
    assert!(refused(|options| options.user_timeout = Some(Duration::MAX)));
}

const SECOND: Duration = Duration::from_secs(1);

/// The sockets of a connection between drivers with these options.
fn sockets(way: Way, options: SocketOptions) -> Vec<(OwnedFd, Side)> {
    let watched = Watched::default();
    let mut world = World::new(way, 1, options, || watched.clone());
    world.send(&[vec![1]]);
    world.until_frames(1);
    let sockets: Vec<_> = watched.0.lock().unwrap().drain(..).map(|(side, socket)| (socket, side)).collect();
    assert_eq!(sockets.len(), 2);
    sockets
}
