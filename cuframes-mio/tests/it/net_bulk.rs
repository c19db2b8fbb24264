//! Bulk data through the driver of machines: straight from memory to memory, as fast as it is wanted, and no faster.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cuframes_mio::net::{Driver, Endpoint, Plain, SocketOptions};
use cuframes_mio::{Pollable, Turn};

use crate::bulk::{Bulk, Told, Way, World, frame};
use crate::common::until;

fn world(way: Way, room: usize) -> World<Plain> {
    World::new(way, room, SocketOptions::default(), || Plain)
}

/// Small buffers, so that what is on its way is little.
fn tight(way: Way, room: usize) -> World<Plain> {
    let mut options = SocketOptions::default();
    options.send_buffer = Some(BUFFER);
    options.receive_buffer = Some(BUFFER);
    World::new(way, room, options, || Plain)
}

#[test]
fn frames_go_from_memory_to_memory_and_are_the_same_there() {
    for way in [Way::Tcp, Way::Unix] {
        let mut world = world(way, usize::MAX);
        // In parts that one call does not send, and among frames that fill no part.
        world
            .connecting
            .with(|driver| driver.command(cuframes_mio::now(), |bulk| bulk.piece = 700_000))
            .unwrap();
        let lens = [0, 9 << 20, 1, 0, 7, 1 << 20, 3 << 20, 2];
        let frames: Vec<_> = lens.into_iter().enumerate().map(|(n, len)| frame(n, len)).collect();
        let conn = world.send(&frames);
        world.until_frames(frames.len());
        assert!(world.frames() == frames, "{way:?}: other frames came");
        let all: usize = lens.into_iter().map(|len| len + 4).sum();
        let (sender, receiver) = (world.connecting.get_ref().machine(), world.listening.get_ref().machine());
        assert_eq!((sender.sent, receiver.straight + receiver.by_way), (all, all));
        // By way of the driver comes only what is read together with the length.
        assert!(receiver.by_way <= lens.len() * (64 << 10), "{way:?}: {} bytes", receiver.by_way);
        assert!(sender.parts.get() > 1);
        let accepted = |told: &Told| matches!(told, Told::Accepted(_));
        assert_eq!(world.heard.iter().filter(|told| accepted(told)).count(), 1);
        // And the other way.
        let Some(Told::Accepted(back)) = world.heard.iter().find(|told| accepted(told)).cloned() else {
            panic!()
        };
        world.listening.command(|bulk, _| bulk.send(back, frame(99, 5 << 20))).unwrap();
        let mut heard = None;
        until("the answer", || {
            world.turn();
            heard = world.connecting.poll_within(Some(Duration::ZERO), Driver::poll_event).unwrap();
            matches!(heard, Some(Told::Frame(..)))
        });
        assert!(heard == Some(Told::Frame(conn, frame(99, 5 << 20))));
    }
}

#[test]
fn whoever_has_no_room_stops_the_sender_and_room_lets_it_go_on() {
    for way in [Way::Tcp, Way::Unix] {
        let mut world = tight(way, 1);
        let frames: Vec<_> = (0..48).map(|n| frame(n, FRAME)).collect();
        world.send(&frames);
        for count in 1..=frames.len() {
            world.until_frames(count);
            // Nothing more is read, however long this goes on, and so only what the system buffers is sent.
            for _ in 0..20 {
                world.turn();
            }
            let (sender, receiver) =
                (world.connecting.get_ref().machine(), world.listening.get_ref().machine());
            assert_eq!(world.frames().len(), count);
            assert!(receiver.kept <= 64 << 10, "{way:?}: {} bytes are kept", receiver.kept);
            let on_the_way = sender.sent - count * (FRAME + 4);
            assert!(on_the_way <= 8 * BUFFER + (64 << 10), "{way:?}: {on_the_way} bytes are on their way");
            world.listening.command(|bulk, _| bulk.release()).unwrap();
            world.hear();
        }
        assert!(world.frames() == frames, "{way:?}: other frames came");
        assert!(world.connecting.get_ref().machine().is_sent());
    }
}

#[test]
fn what_lies_in_the_socket_is_read_as_soon_as_a_command_makes_room() {
    // Whatever has been sent over a Unix socket has arrived.
    let mut world = world(Way::Unix, 1);
    let frames: Vec<_> = (0..40).map(|n| frame(n, 3000)).collect();
    world.send(&frames);
    until("everything to be sent", || {
        world.turn();
        world.connecting.get_ref().machine().is_sent()
    });
    world.until_frames(1);
    for count in 2..=frames.len() {
        world.listening.command(|bulk, _| bulk.release()).unwrap();
        // Without another turn.
        world.hear();
        assert_eq!(world.frames().len(), count);
    }
    assert!(world.frames() == frames, "other frames came");
}

#[test]
fn a_deadline_may_make_room() {
    for way in [Way::Tcp, Way::Unix] {
        let mut world = world(way, 1);
        let frames: Vec<_> = (0..10).map(|n| frame(n, FRAME)).collect();
        world.send(&frames);
        for count in 1..=frames.len() {
            world.until_frames(count);
            let soon = |bulk: &mut Bulk, now| bulk.room_at = Some(now + Duration::from_millis(1));
            world.listening.command(soon).unwrap();
        }
        assert!(world.frames() == frames, "{way:?}: other frames came");
    }
}

#[test]
fn taking_an_event_may_make_room() {
    for way in [Way::Tcp, Way::Unix] {
        let mut world = world(way, 1);
        let frames: Vec<_> = (0..10).map(|n| frame(n, 15_000)).collect();
        world.send(&frames);
        until("everything to be sent", || {
            world.turn();
            world.connecting.get_ref().machine().is_sent()
        });
        world.until_frames(1);
        world.listening.command(|bulk, _| bulk.room_when_told = true).unwrap();
        world.listening.command(|bulk, _| bulk.release()).unwrap();
        let mut count = 1;
        until("the other frames", || {
            let event = world.listening.next_event(Some(Duration::from_secs(1))).unwrap();
            count += usize::from(matches!(event, Some(Told::Frame(..))));
            world.heard.extend(event);
            count == frames.len()
        });
        assert!(world.frames() == frames, "{way:?}: other frames came");
    }
}

#[test]
fn what_comes_on_one_connection_may_make_room_for_another() {
    let mut world = world(Way::Unix, 1);
    world.listening.command(|bulk, _| bulk.room_by_others = true).unwrap();
    let frames: Vec<_> = (0..40).map(|n| frame(n, 3000)).collect();
    world.send(&frames);
    until("everything to be sent", || {
        world.turn();
        world.connecting.get_ref().machine().is_sent()
    });
    let Endpoint::Ipc(path) = &world.endpoint else { panic!("no path") };
    let mut other = UnixStream::connect(path).unwrap();
    until("the other one", || {
        world.listen();
        matches!(world.heard.last(), Some(Told::Accepted(_)))
    });
    assert_eq!(world.frames().len(), 1);
    for count in 2..=frames.len() {
        other.write_all(&[0]).unwrap();
        until("the next frame", || {
            world.listen();
            world.frames().len() == count
        });
    }
    assert!(world.frames() == frames, "other frames came");
}

#[test]
fn an_end_is_found_when_what_was_said_before_has_been_read() {
    for way in [Way::Tcp, Way::Unix] {
        let mut world = world(way, 1);
        let frames: Vec<_> = (0..5).map(|n| frame(n, 25_000)).collect();
        let conn = world.send(&frames);
        until("everything to be sent", || {
            world.turn();
            world.connecting.get_ref().machine().is_sent()
        });
        world.connecting.command(|bulk, _| bulk.close(conn)).unwrap();
        for count in 1..=frames.len() {
            world.until_frames(count);
            assert!(!world.heard.iter().any(|told| matches!(told, Told::Ended(_))));
            world.listening.command(|bulk, _| bulk.release()).unwrap();
            world.hear();
        }
        until("the end", || {
            world.turn();
            matches!(world.heard.last(), Some(Told::Ended(_)))
        });
        assert!(world.frames() == frames, "{way:?}: other frames came");
    }
}

#[test]
fn frames_that_come_together_wait_with_the_machine_until_there_is_room() {
    let mut world = world(Way::Tcp, 1);
    let Endpoint::Tcp(address) = world.endpoint else { panic!("no address") };
    let mut peer = TcpStream::connect(address).unwrap();
    let all: Vec<u8> = (0..100_u8).flat_map(|n| [1, 0, 0, 0, n]).collect();
    peer.write_all(&all).unwrap();
    for count in 1..=100 {
        world.until_frames(count);
        assert_eq!(world.frames()[count - 1], [u8::try_from(count - 1).unwrap()]);
        world.listening.command(|bulk, _| bulk.release()).unwrap();
        world.hear();
    }
    assert!(world.listening.get_ref().machine().kept > 0);
}

#[test]
fn a_driver_that_is_asked_for_nothing_more_waits() {
    let mut world = world(Way::Tcp, 1);
    world.send(&[frame(0, 1000), frame(1, 1000)]);
    world.until_frames(1);
    until("everything to be quiet", || {
        world.turn();
        let listening: &mut Pollable<_> = &mut world.listening;
        // Neither a turn of what is left over, nor a timer that rings at once.
        listening.wait(Some(Duration::ZERO)).unwrap() == Turn::Idle && !is_readable(listening)
    });
}

fn is_readable(fd: impl std::os::fd::AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() > 0
}

const BUFFER: usize = 64 << 10;
const FRAME: usize = 256 << 10;
