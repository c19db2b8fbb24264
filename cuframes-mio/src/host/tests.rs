use cuframes_core::wire::MessageType;
use rustix::fs::{SealFlags, fcntl_add_seals, ftruncate};
use rustix::io::Errno;

use super::*;
use crate::testing::key;

const FRAME: usize = 5003;

fn ring(slots: u64) -> RingSize {
    RingSize::new(slots).unwrap()
}

fn pool() -> HostPool {
    HostPool::create(&key(), to_u64(FRAME), ring(3)).unwrap()
}

fn handles(pool: &HostPool) -> impl Iterator<Item = MemHandle> {
    (0..pool.slots).map(|slot| pool.memory(slot).handle)
}

fn views(pool: &HostPool) -> Vec<HostView> {
    let fd = pool.fd().try_clone_to_owned().unwrap();
    HostView::open(&key(), &fd, to_u64(FRAME), handles(pool)).unwrap()
}

fn violation(result: Result<Vec<HostView>, Error>) -> Violation {
    match result.unwrap_err() {
        Error::Violation { violation, .. } => violation,
        other => panic!("{other}"),
    }
}

/// A memfd of one page with these seals.
fn sealed(seals: SealFlags) -> OwnedFd {
    let (fd, _) = memfd::create("test", page_size()).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn every_subscriber_sees_what_the_publisher_writes_into_each_slot() {
    let mut pool = pool();
    let views = views(&pool);
    let pattern = |slot: u8| -> Vec<u8> { (0..FRAME).map(|i| i.to_le_bytes()[0] ^ slot).collect() };
    for slot in 0..3 {
        pool.slot_bytes_mut(slot.into()).copy_from_slice(&pattern(slot));
    }
    for (slot, view) in (0..3).zip(&views) {
        assert_eq!(view.bytes(u64::MAX), pattern(slot));
        assert_eq!(view.bytes(10), &pattern(slot)[..10]);
        let mut copy = vec![0; FRAME + 1];
        assert_eq!(view.copy_to(&mut copy), FRAME);
        assert_eq!(&copy[..FRAME], pattern(slot));
        assert_eq!(copy[FRAME], 0, "nothing behind the frame is touched");
        assert_eq!(view.copy_to(&mut copy[..13]), 13);
    }
    assert_eq!(views.len(), 3);
}

#[test]
fn slots_start_at_pages_and_count_modulo_the_ring_size() {
    let mut pool = pool();
    pool.slot_bytes_mut(5).fill(7);
    let handle = HostHandle::decode(&pool.memory(2).handle);
    assert_eq!(handle, Ok(HostHandle { offset: 2 * 8192, len: FRAME }), "with pages of 4 KiB");
    assert!(views(&pool)[2].bytes(u64::MAX).iter().all(|&byte| byte == 7));
}

#[test]
fn the_seals_refuse_truncation_and_every_other_writer() {
    let pool = pool();
    let len = to_u64(pool.map.len());
    for size in [0, len - 1, len + 1] {
        assert_eq!(ftruncate(pool.fd(), size), Err(Errno::PERM));
    }
    let fd = pool.fd().try_clone_to_owned().unwrap();
    assert!(MmapOptions::new().map_raw(&fd).is_err(), "a writable map");
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    assert_eq!(fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM), "the seals themselves");
}

#[test]
fn memory_that_is_not_sealed_is_a_violation() {
    let seals = SealFlags::SHRINK | SealFlags::FUTURE_WRITE;
    let open = |fd| HostView::open(&key(), &fd, 8, [HostHandle { offset: 0, len: 8 }.encode()].into_iter());
    open(sealed(seals)).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    for fd in [file.into(), sealed(SealFlags::SHRINK), sealed(SealFlags::FUTURE_WRITE | SealFlags::GROW)] {
        let violation = violation(open(fd));
        assert_eq!(violation.place, Place::Message(MessageType::EVENT_FD));
        assert!(matches!(violation.problem, Problem::Mismatch { expected: 0x12, .. }), "{violation}");
    }
}

#[test]
fn a_handle_that_means_no_frame_inside_the_pool_is_a_violation() {
    let pool = pool();
    let fd = pool.fd().try_clone_to_owned().unwrap();
    let size = pool.map.len();
    let open = |handle: MemHandle| HostView::open(&key(), &fd, to_u64(FRAME), [handle].into_iter());
    let truncated = |needed, available| Problem::Truncated { needed, available };
    for (offset, len, problem) in [
        (0, FRAME - 1, truncated(to_u64(FRAME), to_u64(FRAME - 1))),
        (size - FRAME + 5, FRAME, truncated(to_u64(size + 5), to_u64(size))),
        (usize::MAX - 7, FRAME, truncated(u64::MAX, to_u64(size))),
        (4, FRAME, Problem::Value { value: 4 }),
    ] {
        assert_eq!(violation(open(HostHandle { offset, len }.encode())).problem, problem);
    }
    let other_backend = violation(open(MemHandle([0; 64])));
    assert_eq!(other_backend.field, "cuda_mem_handle");
    assert!(matches!(other_backend.problem, Problem::Mismatch { found: 0, .. }), "{other_backend}");
}

#[test]
fn a_handle_is_its_tag_offset_and_length_little_endian() {
    let handle = HostHandle { offset: 0x1000, len: 0x0203 };
    let encoded = handle.encode();
    let MemHandle(bytes) = encoded;
    assert_eq!(&bytes[..8], b"CUFHOST1");
    assert_eq!(bytes[8..16], [0, 0x10, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[16..24], [3, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[24..], [0; 40]);
    assert_eq!(HostHandle::decode(&encoded), Ok(handle));
}

#[test]
fn frames_that_no_memory_holds_are_an_error_before_anything_is_allocated() {
    for frame_size in [u64::MAX, u64::MAX / 2, 1 << 62] {
        let error = HostPool::create(&key(), frame_size, ring(16)).unwrap_err();
        assert!(matches!(error, Error::Misuse { .. }), "{error}");
    }
    let error = HostPool::create(&key(), 1 << 50, ring(16)).unwrap_err();
    assert!(
        matches!(error, Error::NoSpace { needed: 0x40_0000_0000_0000, available: Some(_), .. }),
        "{error}"
    );
}

#[test]
fn a_view_of_some_slots_maps_no_more_than_those_wherever_they_start() {
    let mut pool = pool();
    pool.slot_bytes_mut(1).iter_mut().zip(0u8..=255).for_each(|(byte, n)| *byte = n);
    pool.slot_bytes_mut(2).fill(7);
    let fd = pool.fd().try_clone_to_owned().unwrap();
    let open = |len, handles: &[MemHandle]| {
        HostView::open(&key(), &fd, to_u64(len), handles.iter().copied()).unwrap()
    };
    let last = open(FRAME, &[pool.memory(2).handle]);
    assert_eq!((last[0].map.len(), last[0].bytes(u64::MAX)), (FRAME, &[7; FRAME][..]));
    let [late, early] = [24, 8].map(|start| HostHandle { offset: 8192 + start, len: 21 }.encode());
    let inside = open(21, &[late, early]);
    assert_eq!(inside[0].map.len(), 16 + 21);
    for (view, first) in inside.iter().zip([24, 8]) {
        let expected: Vec<u8> = (first..first + 21).collect();
        let mut copy = [0; 21];
        assert_eq!((view.copy_to(&mut copy), &copy[..]), (21, &expected[..]));
        assert_eq!(view.bytes(u64::MAX), expected);
    }
}
