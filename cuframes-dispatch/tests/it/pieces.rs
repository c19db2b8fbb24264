//! What holds for any bytes in any pieces, and for any noise.

use std::time::Duration;

use allocation_counter::measure;
use cuframes_core::Instant;
use cuframes_core::streams::{Action, ConnId, Machine};
use cuframes_dispatch::wire::{Block, BlockId, Message, Roi, Stats, Status, Version};
use cuframes_dispatch::{Context, Server, ServerEvent, TaskConfig, Worker, WorkerConfig};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::bytes::{acquire, decode, disconnect, done, encode, failed, released, sent, shutdown};
use crate::properties::cases;
use crate::world::{block, id};

fn roi() -> impl Strategy<Value = Roi> {
    let number = || prop_oneof![-200..200_i64, any::<i64>()];
    (vec(number(), 0..5), vec(number(), 0..5)).prop_map(|(offset, shape)| Roi::new(&offset, &shape))
}

fn any_block() -> impl Strategy<Value = Block> {
    let status = prop_oneof![
        Just(Status::Created),
        Just(Status::Processing),
        Just(Status::Success),
        Just(Status::Failed)
    ];
    let stats = (any::<[f64; 2]>(), any::<[u64; 4]>(), any::<f32>()).prop_map(|(times, bytes, gpu)| Stats {
        wall_seconds: times[0],
        cpu_seconds: times[1],
        peak_rss_bytes: bytes[0],
        io_read_bytes: bytes[1],
        io_write_bytes: bytes[2],
        gpu_util_pct: gpu,
        gpu_mem_bytes: bytes[3],
    });
    (roi(), roi(), ".{0,300}", any::<u64>(), status, option::of(stats)).prop_map(
        |(read_roi, write_roi, task_id, spatial_id, status, stats)| Block {
            read_roi,
            write_roi,
            block_id: BlockId::new(task_id, spatial_id),
            status,
            stats,
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (".{0,40}", any::<Option<u64>>())
            .prop_map(|(task_id, worker_id)| Message::AcquireBlock { task_id, worker_id }),
        (any_block(), any::<Option<f64>>())
            .prop_map(|(block, timeout_secs)| Message::SendBlock { block, timeout_secs }),
        any_block().prop_map(|block| Message::ReleaseBlock { block }),
        (any_block(), ".{0,300}").prop_map(|(block, error)| Message::BlockFailed { block, error }),
        Just(Message::RequestShutdown),
        Just(Message::Disconnect),
    ]
}

/// Without what W0 has no room for.
fn reduce(message: &mut Message) {
    match message {
        Message::AcquireBlock { worker_id, .. } => *worker_id = None,
        Message::SendBlock { block, timeout_secs } => (block.stats, *timeout_secs) = (None, None),
        Message::ReleaseBlock { block } | Message::BlockFailed { block, .. } => block.stats = None,
        _ => {}
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn messages_come_out_as_they_went_in(
        mut all in vec(message(), 0..8),
        is_old: bool,
        pieces in vec(1..90_usize, 1..10),
    ) {
        let version = if is_old { Version::W0 } else { Version::W2 };
        let bytes = encode(version, &all);
        if is_old {
            all.iter_mut().for_each(reduce);
        }
        let (found, error) = decode(version, &bytes, &pieces);
        // Some numbers are not equal to themselves.
        prop_assert_eq!((format!("{found:?}"), error), (format!("{all:?}"), None));
        prop_assert_eq!(encode(version, &found), bytes);
    }

    #[test]
    fn a_payload_that_is_cut_is_refused_and_one_that_is_changed_is_a_message_or_not(
        message in message(),
        at: Index,
        changes in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode(Version::W2, &[message]);
        let payload = &bytes[5..];
        let cut = Message::decode(Version::W2, &payload[..at.index(payload.len())]);
        prop_assert!(cut.is_err_and(|error| error.is_truncated()));
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = *byte);
        for version in [Version::W2, Version::W0] {
            match Message::decode(version, &bytes[5..]) {
                Ok(message) => {
                    let again = encode(version, &[message]);
                    let (found, error) = decode(version, &again, &[usize::MAX]);
                    prop_assert_eq!((encode(version, &found), error), (again, None));
                }
                Err(error) => prop_assert!(error.offset <= bytes.len() - 5),
            }
        }
    }

    #[test]
    fn a_context_comes_out_as_it_went_in(host in ".{0,20}", port: u16, task in "[%:=a3AD25 ]{0,12}", worker: u64) {
        let context = Context::new(&host, port, &task, worker);
        let read = Context::parse(&context.to_string()).unwrap();
        prop_assert_eq!((read.hostname(), read.port()), (Ok(&host[..]), Ok(port)));
        prop_assert_eq!((read.task_id(), read.worker_id()), (Ok(&task[..]), Ok(worker)));
    }
}

/// Words that a worker may say, right ones and wrong ones.
fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => Just(acquire("t")),
        2 => Just(acquire("u")),
        6 => (0..6_u8).prop_map(|number| done("t", number)),
        3 => (0..6_u8).prop_map(|number| failed("t", number, "no")),
        1 => (0..6_u8, 0..4_u8).prop_map(|(number, status)| released("t", number, status)),
        1 => Just(disconnect()),
        1 => Just(acquire("x")),
        1 => Just(shutdown()),
        1 => (0..6_u8).prop_map(|number| sent("t", number, 0)),
        1 => vec(any::<u8>(), 0..20),
    ]
}

/// Words that a server may say.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => (0..6_u8).prop_map(|number| sent("t", number, 0)), 1 => word()]
}

/// A server with a task of six blocks, some of which wait for others, and one that has ended.
fn server() -> Server {
    let mut server = Server::new(Version::W2);
    server.schedule(Instant::ZERO, |scheduler| {
        ["t", "u"].into_iter().for_each(|task| scheduler.add_task(TaskConfig::new(task)).unwrap());
        scheduler.close_task("u").unwrap();
        for (number, others) in [(0, &[][..]), (1, &[0]), (2, &[0]), (3, &[]), (4, &[1, 3]), (5, &[])] {
            let others: Vec<BlockId> = others.iter().map(|other| id("t", *other)).collect();
            scheduler.add_block(block("t", number), &others).unwrap();
        }
    });
    server
}

/// What a machine tells, and what it sends on each connection until it closes it.
#[derive(Debug)]
struct Told<E> {
    events: Vec<E>,
    sent: Vec<(Vec<u8>, bool)>,
}

impl<E: PartialEq> Told<E> {
    /// Whether the two are the same, but for what was sent on a connection before a fault that came earlier or later.
    fn is_like(&self, other: &Self) -> bool {
        let mut sent = self.sent.iter().zip(&other.sent);
        self.events == other.events
            && sent.all(|((one, is_closed), (two, other_is))| {
                is_closed == other_is
                    && (one == two || *is_closed && (one.starts_with(two) || two.starts_with(one)))
            })
    }
}

/// Gives streams to a machine, one after the other, each in pieces of these lengths.
fn feed<M: Machine>(machine: &mut M, streams: &[(ConnId, &[u8])], pieces: &[usize]) -> Told<M::Event> {
    let mut sent = vec![(Vec::new(), false); streams.len()];
    let mut events = Vec::new();
    let mut pieces = pieces.iter().cycle();
    for (conn, stream) in streams {
        let mut rest = *stream;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
            machine.handle_bytes(Instant::ZERO, *conn, piece);
            rest = after;
            for ((sent, _), (conn, _)) in sent.iter_mut().zip(streams) {
                while let Some(bytes) = machine.poll_transmit(*conn) {
                    let n = bytes.len().min(*pieces.next().unwrap());
                    sent.extend(&bytes[..n]);
                    machine.transmitted(*conn, n);
                }
            }
            while let Some(action) = machine.poll_action() {
                let is_its = |(conn, _): &(ConnId, &[u8])| action == Action::Close(*conn);
                if let Some(at) = streams.iter().position(is_its) {
                    sent[at].1 = true;
                }
            }
            events.extend(std::iter::from_fn(|| machine.poll_event()));
        }
    }
    Told { events, sent }
}

fn connected(now: Instant, depth: usize) -> (Worker, ConnId) {
    let mut config = WorkerConfig::new("here", "t");
    config.depth = depth;
    let mut worker = Worker::new(now, config);
    let Some(Action::Connect { conn, .. }) = worker.poll_action() else { panic!("no attempt") };
    worker.handle_connected(now, conn);
    (worker, conn)
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn a_server_tells_and_sends_the_same_however_the_streams_are_cut(
        streams in vec(vec(word(), 0..8).prop_map(|words| words.concat()), 1..6),
        pieces in vec(1..90_usize, 1..10),
    ) {
        let run = |pieces: &[usize]| {
            let mut server = server();
            let conns = streams.iter().map(|_| server.handle_accepted(Instant::ZERO, 0).unwrap());
            let conns: Vec<ConnId> = conns.collect();
            let streams: Vec<_> = conns.into_iter().zip(streams.iter().map(|stream| &stream[..])).collect();
            feed(&mut server, &streams, pieces)
        };
        let whole = run(&[usize::MAX]);
        for pieces in [&pieces[..], &[1]] {
            let cut = run(pieces);
            prop_assert!(cut.is_like(&whole), "{cut:?}\n{whole:?}");
        }
    }

    #[test]
    fn a_worker_tells_and_sends_the_same_however_the_stream_is_cut(
        stream in vec(answer(), 0..6).prop_map(|words| words.concat()),
        depth in 1..5_usize,
        pieces in vec(1..90_usize, 1..10),
    ) {
        let run = |pieces: &[usize]| {
            let (mut worker, conn) = connected(Instant::ZERO, depth);
            feed(&mut worker, &[(conn, &stream)], pieces)
        };
        let (cut, whole) = (run(&pieces), run(&[usize::MAX]));
        prop_assert!(cut.is_like(&whole), "{cut:?}\n{whole:?}");
    }
}

/// What is done to a machine.
#[derive(Clone, Debug)]
enum Step {
    Accept,
    Bytes(Index, Vec<u8>),
    Eof(Index),
    Wait(u64),
    Send(Index, usize),
}

fn step(word: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Accept),
        10 => (any::<Index>(), word).prop_map(|(at, bytes)| Step::Bytes(at, bytes)),
        1 => any::<Index>().prop_map(Step::Eof),
        1 => (0..400_000_u64).prop_map(Step::Wait),
        2 => (any::<Index>(), 0..300_usize).prop_map(|(at, n)| Step::Send(at, n)),
    ]
}

/// Does what is asked for, and checks what always holds.
fn noise<M: Machine>(
    machine: &mut M,
    mut conns: Vec<ConnId>,
    steps: &[Step],
    mut told: impl FnMut(M::Event),
) -> Result<(), TestCaseError> {
    let mut now = Instant::ZERO;
    for step in steps {
        let conn = |at: &Index, conns: &[ConnId]| conns.get(at.index(conns.len().max(1))).copied();
        match step {
            Step::Accept => conns.extend(machine.handle_accepted(now, 0)),
            Step::Bytes(at, bytes) => {
                if let Some(conn) = conn(at, &conns) {
                    machine.handle_bytes(now, conn, bytes);
                }
            }
            Step::Eof(at) => {
                if let Some(conn) = conn(at, &conns) {
                    machine.handle_eof(now, conn);
                    prop_assert_eq!(machine.poll_transmit(conn), None);
                }
            }
            Step::Wait(millis) => now = now + Duration::from_millis(*millis),
            Step::Send(at, n) => {
                if let Some(conn) = conn(at, &conns) {
                    let n = machine.poll_transmit(conn).map_or(0, |bytes| bytes.len().min(*n));
                    machine.transmitted(conn, n);
                }
            }
        }
        // It may send somebody away who has been silent for too long.
        machine.handle_timeout(now);
        while let Some(action) = machine.poll_action() {
            if let Action::Close(conn) = action {
                prop_assert_eq!(machine.poll_transmit(conn), None);
            }
        }
        std::iter::from_fn(|| machine.poll_event()).for_each(&mut told);
        // A loop that sleeps until then does not turn for nothing.
        prop_assert!(machine.poll_timeout().is_none_or(|at| at > now));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_server_bears_any_noise_within_a_constant(steps in vec(step(word()), 0..200)) {
        let mut server = server();
        let (mut result, mut joined, mut left) = (Ok(()), 0_usize, 0_usize);
        let info = measure(|| {
            result = noise(&mut server, Vec::new(), &steps, |event| match event {
                ServerEvent::Joined { .. } => joined += 1,
                ServerEvent::Left { .. } => left += 1,
                _ => {}
            });
        });
        result?;
        prop_assert_eq!(server.workers(), joined - left);
        prop_assert!(info.bytes_max < 256 << 10, "{} bytes", info.bytes_max);
    }

    #[test]
    fn a_worker_bears_any_noise_within_a_constant(depth in 1..5_usize, steps in vec(step(answer()), 0..100)) {
        let (mut result, mut conns) = (Ok(()), Vec::new());
        let info = measure(|| {
            let (mut worker, conn) = connected(Instant::ZERO, depth);
            conns.push(conn);
            result = noise(&mut worker, conns.clone(), &steps, |_| {});
        });
        result?;
        prop_assert!(info.bytes_max < 128 << 10, "{} bytes", info.bytes_max);
    }
}
