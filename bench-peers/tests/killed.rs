//! A reader that is killed takes nothing with it, and leaves nothing behind. Readers are this program once more, so it has a
//! `main` of its own.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a failure ends the test")]

mod common;

use std::env::{args, current_exe};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{LONG, nothing_is_left, setup};
use cuframes_bench::system::{Setup, System, Wait};
use cuframes_bench_peers::{Iceoryx2, IpcChannel, UnixSocket};

fn main() {
    let mut words = args().skip(1);
    if let (Some(name), Some(setup), Some(index)) = (words.next(), words.next(), words.next()) {
        let (setup, index) = (serde_json::from_str(&setup).unwrap(), index.parse().unwrap());
        match name.as_str() {
            Iceoryx2::NAME => reads::<Iceoryx2>(&setup, index),
            IpcChannel::NAME => reads::<IpcChannel>(&setup, index),
            UnixSocket::NAME => reads::<UnixSocket>(&setup, index),
            _ => panic!("{name}?"),
        }
        return;
    }
    // Shared memory is not told that a process has gone: frames go on for the other. A copy to nobody is an error.
    assert!(killed::<Iceoryx2>());
    assert!(!killed::<IpcChannel>());
    assert!(!killed::<UnixSocket>());
}

/// Kills the first of two readers. Whether the other has frames thereafter.
fn killed<S: System>() -> bool {
    let (home, setup) = setup(2, 64, false);
    let mut writer = S::writer(&setup).unwrap();
    let (mut first, mut second) = (start::<S>(&setup, 0), start::<S>(&setup, 1));
    S::wait_for_readers(&mut writer, &setup, LONG).unwrap();
    let mut said = BufReader::new(second.stdout.take().unwrap()).lines();
    S::write(&mut writer, |frame| frame.fill(1)).unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "1");

    first.kill().unwrap();
    first.wait().unwrap();
    let goes_on = S::write(&mut writer, |frame| frame.fill(2)).is_ok();
    if goes_on {
        assert_eq!(said.next().unwrap().unwrap(), "2");
    }
    drop(writer);
    assert!(second.wait().unwrap().success());
    nothing_is_left(&home);
    println!("a reader of {} was killed and left nothing behind", S::NAME);
    goes_on
}

fn start<S: System>(setup: &Setup, index: usize) -> Child {
    let setup = serde_json::to_string(setup).unwrap();
    Command::new(current_exe().unwrap())
        .args([S::NAME, &setup, &index.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Says what is in each frame, until the stream ends.
fn reads<S: System>(setup: &Setup, index: usize) {
    let mut reader = S::reader(setup, index).unwrap();
    let wait = Wait::Block(Duration::from_millis(100));
    while let Ok(frame) = S::read(&mut reader, wait, |frame| frame.first().copied()) {
        if let Some(number) = frame.flatten() {
            println!("{number}");
        }
    }
}
