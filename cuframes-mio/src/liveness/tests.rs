use std::io::Read;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use super::*;
use crate::testing::{child, child_argument, child_in_new_pid_namespace, is_readable, skipped};

fn sleeper() -> Child {
    Command::new("sleep").arg("60").spawn().unwrap()
}

#[test]
fn the_peer_of_a_socket_is_named_with_its_user() {
    let (a, _b) = UnixStream::pair().unwrap();
    let peer = PeerCred::of(&a).unwrap();
    assert_eq!(peer.pid, Some(std::process::id()));
    assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    assert!(!PidFd::of_peer(&a).unwrap().is_dead().unwrap());
}

#[test]
fn a_killed_process_is_dead_while_it_is_a_zombie_and_afterwards() {
    let mut child = sleeper();
    let pidfd = PidFd::open(child.id()).unwrap();
    assert!(!pidfd.is_dead().unwrap() && !is_dead(child.id()));
    child.kill().unwrap();
    while !is_readable(&pidfd) {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(is_dead(child.id()), "a zombie");
    child.wait().unwrap();
    assert!(is_dead(child.id()), "reaped");
    assert!(pidfd.is_dead().unwrap());
}

#[test]
fn a_peer_is_looked_up_by_its_number_only_where_the_kernel_does_not_know_the_question() {
    let us = Some(std::process::id());
    for unknown in [nix::Error::ENOPROTOOPT, nix::Error::EOPNOTSUPP] {
        assert!(!PidFd::told_or_looked_up(Err(unknown), us).unwrap().is_dead().unwrap());
        assert!(!is_gone(&PidFd::told_or_looked_up(Err(unknown), None).unwrap_err()), "{unknown}");
    }
    // Somebody else has its number by now: us.
    for gone in [nix::Error::ESRCH, nix::Error::EINVAL] {
        assert!(is_gone(&PidFd::told_or_looked_up(Err(gone), us).unwrap_err()), "{gone}");
    }
    assert!(!is_gone(&PidFd::told_or_looked_up(Err(nix::Error::EMFILE), us).unwrap_err()));
    let mut child = sleeper();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_gone(&PidFd::told_or_looked_up(Err(nix::Error::ENOPROTOOPT), Some(child.id())).unwrap_err()));
}

/// Its child may hold the connection open for long.
#[test]
fn a_peer_that_was_reaped_is_gone_though_somebody_has_its_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut peer = child("liveness::tests::child_leaves_its_socket_to_another", &path).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    assert!(peer.wait().unwrap().success());
    match PidFd::of_peer(&stream) {
        Ok(process) => assert!(process.is_dead().unwrap()),
        Err(error) => assert!(is_gone(&error), "{error}"),
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the other one ends, too");
}

#[test]
#[ignore = "ends, and leaves a process behind that ends with its socket: see the test above"]
#[expect(clippy::zombie_processes, reason = "the other process is to live longer than this one")]
fn child_leaves_its_socket_to_another() {
    let stream = UnixStream::connect(child_argument()).unwrap();
    Command::new("cat").stdin(OwnedFd::from(stream)).spawn().unwrap();
}

#[test]
fn a_pid_that_went_to_a_thread_or_that_nobody_can_have_is_dead() {
    let thread = thread::spawn(|| {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        is_dead(link.file_name().unwrap().to_str().unwrap().parse().unwrap())
    });
    assert!(thread.join().unwrap());
    assert!(is_dead(u32::MAX));
}

/// Two containers without a common pid namespace see no pids of each other.
#[test]
fn a_peer_in_another_pid_namespace_has_no_pid_but_can_be_watched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let name = "liveness::tests::child_looks_at_a_peer_outside_its_namespace";
    let Some(mut command) = child_in_new_pid_namespace(name, &path) else {
        return skipped("a peer in another pid namespace", "not allowed to make one");
    };
    let mut child = command.spawn().unwrap();
    let _stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(_) => assert_eq!(child.try_wait().unwrap(), None, "the child ended too early"),
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "needs a pid namespace of its own: see the test above"]
fn child_looks_at_a_peer_outside_its_namespace() {
    let (stream, _) = UnixListener::bind(child_argument()).unwrap().accept().unwrap();
    let peer = PeerCred::of(&stream).unwrap();
    assert_eq!((peer.pid, peer.uid), (None, rustix::process::geteuid().as_raw()));
    match PidFd::of_peer(&stream) {
        Ok(pidfd) => assert!(!pidfd.is_dead().unwrap()),
        Err(error) => skipped("watching a peer in another pid namespace", &error.to_string()),
    }
}
