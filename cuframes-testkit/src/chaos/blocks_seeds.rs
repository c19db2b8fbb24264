//! Where the fuzzing of the work queue starts.

use cuframes_dispatch::wire::{Block, BlockId, Message, Roi, Stats, Status, Version};

use super::blocks::{encode, message};

type Seeds = Vec<(String, Vec<u8>)>;

fn messages() -> [(&'static str, Message); 6] {
    let stats = Stats {
        wall_seconds: 1.5,
        cpu_seconds: 1.25,
        peak_rss_bytes: 4096,
        io_read_bytes: 10,
        io_write_bytes: 70_000,
        gpu_util_pct: f32::NAN,
        gpu_mem_bytes: 0,
    };
    let block = |status, stats| Block {
        read_roi: Roi::new(&[-10, 0, 300], &[20, 20, 400]),
        write_roi: Roi::new(&[0, 0, 300], &[10, 10, 300]),
        block_id: BlockId::new("t", 1 << 32),
        status,
        stats,
    };
    [
        ("acquire", Message::AcquireBlock { task_id: "segment".into(), worker_id: Some(3) }),
        ("send", Message::SendBlock { block: block(Status::Failed, None), timeout_secs: Some(600.0) }),
        ("release", Message::ReleaseBlock { block: block(Status::Success, Some(stats)) }),
        ("failed", Message::BlockFailed { block: block(Status::Failed, None), error: "boom".into() }),
        ("shutdown", Message::RequestShutdown),
        ("disconnect", Message::Disconnect),
    ]
}

/// Each message in both versions, in pieces of five bytes; all of one version; and faults.
pub(super) fn blocks_frame() -> Seeds {
    let mut seeds = Seeds::new();
    for (number, version) in [(0, Version::W2), (1, Version::W0)] {
        let stream = |messages: &[Message]| [vec![number, 5], encode(version, messages)].concat();
        for (name, message) in messages() {
            seeds.push((format!("{name}-{number}"), stream(&[message])));
        }
        seeds.push((format!("all-{number}"), stream(&messages().map(|(_, message)| message))));
    }
    let faults: [(&str, &[u8]); 5] = [
        ("huge", &[0, 0, 0, 11, 2, 2, 0xfd, 0, 0, 0, 0, 0, 1, 0, 0]),
        ("version", &[0, 0, 0, 2, 1, 4]),
        ("length", &[4, 0, 0, 1]),
        ("trailing", &[0, 0, 0, 4, 2, 4, 1, 2]),
        ("wide", &[0, 0, 0, 10, 2, 0xfd, 4, 0, 0, 0, 0, 0, 0, 0]),
    ];
    seeds.extend(faults.map(|(name, bytes)| (name.into(), [&[0, 5], bytes].concat())));
    seeds
}

/// Stories of workers, in both versions.
pub(super) fn blocks_server() -> Seeds {
    const ACQUIRE: u8 = 0;
    const DONE: u8 = 6;
    const FAILED: u8 = 9;
    const CONNECT: [u8; 1] = [0];
    const READ: [u8; 2] = [4, 255];
    const HANG_UP: [u8; 1] = [3];
    const WAIT: [u8; 1] = [5 | 31 << 3];
    const CLOSE: u8 = 6 | 29 << 3;
    const ABANDON: u8 = 6 | 28 << 3;
    /// The newest worker says something about a block.
    const fn say(kind: u8, number: u8) -> [u8; 3] {
        [1, kind, number]
    }
    /// The one before.
    const fn other(kind: u8, number: u8) -> [u8; 3] {
        [1 | 1 << 3, kind, number]
    }
    /// Adds a block that waits for none, or for another one.
    const fn add(number: u8) -> [u8; 2] {
        [6, number]
    }
    const fn add_after(number: u8, waits_for: u8) -> [u8; 3] {
        [6 | 1 << 3, number, waits_for]
    }
    let start = [&add(0)[..], &add(3), &add_after(1, 0), &add_after(6, 3), &CONNECT, &CONNECT].concat();
    let both = [&start[..], &say(ACQUIRE, 0), &other(ACQUIRE, 0), &other(ACQUIRE, 1)].concat();
    let stories: [(&str, Vec<u8>); 10] = [
        ("done", [&both[..], &say(DONE, 0), &other(DONE, 3), &READ, &say(ACQUIRE, 0), &READ].concat()),
        ("failed", [&both[..], &say(FAILED, 0), &other(ACQUIRE, 0), &other(FAILED, 0), &READ].concat()),
        (
            "lost",
            [&both[..], &other(ACQUIRE, 0), &HANG_UP, &say(ACQUIRE, 0), &say(ACQUIRE, 0), &HANG_UP].concat(),
        ),
        ("late", [&both[..], &WAIT, &say(ACQUIRE, 0), &say(DONE, 0), &READ, &say(DONE, 0)].concat()),
        ("closed", [&both[..], &[CLOSE, 0, 0], &say(DONE, 0), &other(DONE, 3), &say(ACQUIRE, 0)].concat()),
        ("abandoned", [&both[..], &[ABANDON, 0], &say(DONE, 0), &say(ACQUIRE, 0), &READ].concat()),
        ("foreign", [&both[..], &say(DONE, 3), &other(DONE, 0)].concat()),
        ("greedy", [&start[..], &say(224, 2), &say(224, 2), &say(224, 2)].concat()),
        ("shut-down", [&both[..], &other(ACQUIRE, 1), &[7 | 31 << 3], &READ, &CONNECT, &WAIT].concat()),
        ("noise", [&both[..], &[2, 6, 0, 0, 0, 1, 2, 9], &[2 | 1 << 3, 3, 0, 0, 0], &HANG_UP].concat()),
    ];
    let mut seeds = Seeds::new();
    for (name, steps) in stories {
        for version in 0..2 {
            // Two retries and 61 ms, one and no limit, none and 1 ms.
            seeds
                .push((format!("{name}-{version}"), [&[version, 2 | 3 << 3, 1 | 4, 0], &steps[..]].concat()));
        }
    }
    // Each word of a worker that has a block.
    for kind in 0..16 {
        let word = format!("{:?}", message(kind, 0));
        let name = word.split(' ').next().unwrap_or_default().to_lowercase();
        seeds
            .push((format!("word-{kind}-{name}"), [&[0, 2, 2, 2], &both[..], &say(kind, 0), &READ].concat()));
    }
    seeds
}
