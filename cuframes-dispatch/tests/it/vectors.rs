//! The golden bytes of `vectors/`: written by the programs of daisy 2.0.0, or by the library that it encodes with.

use cuframes_dispatch::wire::{Block, BlockId, Message, Roi, Stats, Status, Version};

use crate::bytes::{decode, encode, vector};

/// The block of most vectors.
fn block(status: Status) -> Block {
    Block {
        read_roi: Roi::new(&[-10, 0, 300], &[20, 20, 400]),
        write_roi: Roi::new(&[0, 0, 300], &[10, 10, 300]),
        block_id: BlockId::new("t", 7),
        status,
        stats: None,
    }
}

/// It reads as this, and this is written so.
fn is(version: Version, vector: &[u8], message: &Message) {
    assert_eq!(encode(version, std::slice::from_ref(message)), vector);
    for pieces in [1, 3, usize::MAX] {
        assert_eq!(decode(version, vector, &[pieces]), (vec![message.clone()], None));
    }
}

#[test]
fn requests_of_the_release() {
    for (worker_id, bytes) in [(Some(3), vector!("w2_acquire")), (None, vector!("w2_acquire_no_number"))] {
        is(Version::W2, &bytes, &Message::AcquireBlock { task_id: "t".into(), worker_id });
    }
}

#[test]
fn blocks_that_a_server_of_the_release_sends() {
    let message = Message::SendBlock { block: block(Status::Created), timeout_secs: None };
    is(Version::W2, &vector!("w2_send"), &message);
    let block = |number, status| {
        let (read_roi, write_roi) = match number {
            0 => (Roi::new(&[0], &[10]), Roi::new(&[0], &[10])),
            _ => (Roi::new(&[10], &[20]), Roi::new(&[15], &[10])),
        };
        Block { read_roi, write_roi, block_id: BlockId::new("t", number), status, stats: None }
    };
    let message = Message::SendBlock { block: block(0, Status::Created), timeout_secs: Some(600.0) };
    is(Version::W2, &vector!("w2_send_first"), &message);
    let message = Message::SendBlock { block: block(1, Status::Failed), timeout_secs: Some(600.0) };
    is(Version::W2, &vector!("w2_send_retry"), &message);
}

#[test]
fn blocks_that_a_worker_of_the_release_sends_back() {
    is(Version::W2, &vector!("w2_release"), &Message::ReleaseBlock { block: block(Status::Success) });
    let message = Message::BlockFailed { block: block(Status::Failed), error: "boom".into() };
    is(Version::W2, &vector!("w2_failed"), &message);
}

#[test]
fn measurements_with_a_number_that_is_none() {
    let stats = Stats {
        wall_seconds: 1.5,
        cpu_seconds: 1.25,
        peak_rss_bytes: 4096,
        io_read_bytes: 10,
        io_write_bytes: 70_000,
        gpu_util_pct: f32::NAN,
        gpu_mem_bytes: 0,
    };
    let bytes = vector!("w2_release_stats");
    let block = Block { stats: Some(stats), ..block(Status::Success) };
    assert_eq!(encode(Version::W2, &[Message::ReleaseBlock { block: block.clone() }]), bytes);
    let (messages, error) = decode(Version::W2, &bytes, &[usize::MAX]);
    // It is not equal to itself.
    assert_eq!((format!("{messages:?}"), error), (format!("{:?}", [Message::ReleaseBlock { block }]), None));
    assert_eq!(encode(Version::W2, &messages), bytes);
}

#[test]
fn words_without_a_block() {
    is(Version::W2, &vector!("w2_shutdown"), &Message::RequestShutdown);
    is(Version::W2, &vector!("w2_disconnect"), &Message::Disconnect);
    is(Version::W0, &vector!("w0_shutdown"), &Message::RequestShutdown);
    is(Version::W0, &vector!("w0_disconnect"), &Message::Disconnect);
}

#[test]
fn what_was_spoken_before_the_release() {
    let message = Message::AcquireBlock { task_id: "segment".into(), worker_id: None };
    is(Version::W0, &vector!("w0_acquire"), &message);
    let message = Message::SendBlock { block: block(Status::Created), timeout_secs: None };
    is(Version::W0, &vector!("w0_send"), &message);
    let message = Message::BlockFailed { block: block(Status::Failed), error: "boom".into() };
    is(Version::W0, &vector!("w0_failed"), &message);
}

#[test]
fn what_the_older_version_has_no_room_for_is_left_out() {
    let stats = Some(Stats {
        wall_seconds: 1.0,
        cpu_seconds: 1.0,
        peak_rss_bytes: 1,
        io_read_bytes: 1,
        io_write_bytes: 1,
        gpu_util_pct: 1.0,
        gpu_mem_bytes: 1,
    });
    let full = [
        Message::AcquireBlock { task_id: "segment".into(), worker_id: Some(3) },
        Message::SendBlock { block: Block { stats, ..block(Status::Created) }, timeout_secs: Some(1.0) },
    ];
    let expected = [vector!("w0_acquire"), vector!("w0_send")].concat();
    assert_eq!(encode(Version::W0, &full), expected);
}
