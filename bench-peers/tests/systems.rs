//! Each system hands over what it is given, sleeps where it says so, and leaves nothing behind.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{LONG, nothing_is_left, setup};
use cuframes_bench::system::{System, Wait};
use cuframes_bench_peers::{Iceoryx2, IpcChannel, UnixSocket};
use rustix::time::{ClockId, clock_gettime};

#[test]
fn iceoryx2_hands_every_frame_in_order_to_31_readers() {
    every_frame_comes::<Iceoryx2>(31, 1000, Wait::Block(LONG));
}

#[test]
fn ipc_channel_hands_every_frame_in_order_to_31_readers() {
    every_frame_comes::<IpcChannel>(31, 1000, Wait::Block(LONG));
}

#[test]
fn unix_socket_hands_every_frame_in_order_to_31_readers() {
    every_frame_comes::<UnixSocket>(31, 1000, Wait::Block(LONG));
}

#[test]
fn iceoryx2_hands_large_frames_to_readers_that_spin() {
    every_frame_comes::<Iceoryx2>(2, 3_000_000, Wait::Spin);
}

#[test]
fn ipc_channel_hands_large_frames_to_readers_that_spin() {
    every_frame_comes::<IpcChannel>(2, 3_000_000, Wait::Spin);
}

#[test]
fn unix_socket_hands_large_frames_to_readers_that_spin() {
    every_frame_comes::<UnixSocket>(2, 3_000_000, Wait::Spin);
}

#[test]
fn a_reader_of_iceoryx2_sleeps_until_a_frame_comes() {
    sleeps::<Iceoryx2>();
}

#[test]
fn a_reader_of_ipc_channel_sleeps_until_a_frame_comes() {
    sleeps::<IpcChannel>();
}

#[test]
fn a_reader_of_unix_socket_sleeps_until_a_frame_comes() {
    sleeps::<UnixSocket>();
}

#[test]
fn a_reader_of_iceoryx2_that_is_too_slow_has_the_newest_frames_and_the_writer_does_not_wait() {
    let (home, setup) = setup(1, 64, false);
    let mut writer = Iceoryx2::writer(&setup).unwrap();
    let mut reader = Iceoryx2::reader(&setup, 0).unwrap();
    Iceoryx2::wait_for_readers(&mut writer, &setup, LONG).unwrap();
    for number in 0..100 {
        Iceoryx2::write(&mut writer, |frame| frame.fill(number)).unwrap();
    }
    for number in 96..100 {
        assert_eq!(Iceoryx2::read(&mut reader, Wait::Spin, <[u8]>::to_vec).unwrap(), Some(vec![number; 64]));
    }
    assert_eq!(Iceoryx2::read(&mut reader, Wait::Spin, |_| ()).unwrap(), None);
    drop((writer, reader));
    nothing_is_left(&home);
}

#[test]
fn readers_that_do_not_come_are_waited_for_in_vain() {
    waits_in_vain::<Iceoryx2>();
    waits_in_vain::<IpcChannel>();
    waits_in_vain::<UnixSocket>();
}

/// Frames of a pattern of their own to each reader, which waits as it is told, and the end after them.
fn every_frame_comes<S: System>(readers: usize, frame_bytes: usize, wait: Wait) {
    const FRAMES: usize = 100;
    let (home, setup) = setup(readers, frame_bytes, true);
    let mut writer = S::writer(&setup).unwrap();
    thread::scope(|scope| {
        for index in 0..readers {
            let setup = &setup;
            scope.spawn(move || {
                let mut reader = S::reader(setup, index).unwrap();
                for number in 0..FRAMES {
                    let right = |frame: &[u8]| {
                        frame.len() == frame_bytes && frame.iter().eq(&pattern(number, frame_bytes))
                    };
                    let right = loop {
                        match S::read(&mut reader, wait, right).unwrap() {
                            Some(right) => break right,
                            None => thread::yield_now(),
                        }
                    };
                    assert!(right, "frame {number} of reader {index}");
                }
                // An end that is told as late as a whole time limit.
                let wait = if wait == Wait::Spin { wait } else { Wait::Block(Duration::from_millis(10)) };
                while S::read(&mut reader, wait, |_| panic!("one more frame")).is_ok() {}
            });
        }
        S::wait_for_readers(&mut writer, &setup, LONG).unwrap();
        for number in 0..FRAMES {
            S::write(&mut writer, |frame| frame.copy_from_slice(&pattern(number, frame_bytes))).unwrap();
        }
        drop(writer);
    });
    nothing_is_left(&home);
}

/// One reader sleeps, one spins, for as long: the one that sleeps has hardly worked.
fn sleeps<S: System>() {
    let (home, setup) = setup(2, 64, true);
    let mut writer = S::writer(&setup).unwrap();
    let (come, over) = (Barrier::new(3), AtomicBool::new(false));
    let (asleep, awake) = thread::scope(|scope| {
        let reader = |index, wait| {
            let (setup, come, over) = (&setup, &come, &over);
            scope.spawn(move || {
                let mut reader = S::reader(setup, index).unwrap();
                // The first time may have to set something up.
                while S::read(&mut reader, wait, |_| ()).unwrap().is_none() {}
                let before = work();
                come.wait();
                while S::read(&mut reader, wait, |_| ()).unwrap().is_none() {}
                assert!(over.load(Ordering::SeqCst));
                work() - before
            })
        };
        let (asleep, awake) = (reader(0, Wait::Block(LONG)), reader(1, Wait::Spin));
        S::wait_for_readers(&mut writer, &setup, LONG).unwrap();
        thread::sleep(Duration::from_millis(100));
        S::write(&mut writer, |frame| frame.fill(1)).unwrap();
        come.wait();
        thread::sleep(Duration::from_millis(500));
        over.store(true, Ordering::SeqCst);
        S::write(&mut writer, |frame| frame.fill(2)).unwrap();
        (asleep.join().unwrap(), awake.join().unwrap())
    });
    assert!(asleep * 10 < awake, "{asleep:?} of one that sleeps, {awake:?} of one that spins");
    drop(writer);
    nothing_is_left(&home);
}

fn waits_in_vain<S: System>() {
    let (home, setup) = setup(2, 64, true);
    let mut writer = S::writer(&setup).unwrap();
    let reader = S::reader(&setup, 0).unwrap();
    assert!(S::wait_for_readers(&mut writer, &setup, Duration::from_millis(50)).is_err(), "{}", S::NAME);
    drop((writer, reader));
    nothing_is_left(&home);
}

fn pattern(number: usize, frame_bytes: usize) -> Vec<u8> {
    (0..frame_bytes).map(|at| ((at * 7 + number * 31) % 251).try_into().unwrap()).collect()
}

/// The time that this thread has worked.
fn work() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}
