//! Processes that play a role in a test of another one: [`Role`], [`start`].

use std::env;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use crate::double::this_test;
use crate::{faults, remote};

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Does what it is asked for through a socket, with memory of another process.
    Importer,
    /// Plays a publisher or a subscriber, from beginning to end.
    Story,
    /// Makes memory, exports it, and stays until it is killed or told to end.
    Exporter,
    /// Sends back what it is sent.
    Echo,
}

const ALL: [(Role, &str); 4] = [
    (Role::Importer, "importer"),
    (Role::Story, "story"),
    (Role::Exporter, "exporter"),
    (Role::Echo, "echo"),
];

/// Starts this program in a role, with a socket to it. It has the environment of this one, but no faults other than
/// `variables` say.
pub(crate) fn start(role: Role, variables: &[(&str, &str)]) -> (UnixStream, Child) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = this_test("roles::a_process_plays_the_role_that_it_is_given");
    for fault in ["FAKE_CUDA_FAIL", "FAKE_CUDA_HANG_STREAM", "FAKE_CUDA_IPC", "FAKE_CUDA_IPC_REOPEN"] {
        command.env_remove(fault);
    }
    let name = ALL.iter().find(|(of, _)| *of == role).unwrap().1;
    command.env(ROLE, name).envs(variables.iter().copied());
    let child = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn().unwrap();
    (ours, child)
}

#[test]
fn a_process_plays_the_role_that_it_is_given() {
    let Ok(name) = env::var(ROLE) else {
        let (socket, mut child) = start(Role::Echo, &[]);
        remote::send(&socket, &"hello", &[]).unwrap();
        assert_eq!(remote::receive::<String>(&socket).unwrap().unwrap().0, "hello");
        drop(socket);
        assert!(child.wait().unwrap().success());
        return;
    };
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    match ALL.iter().find(|(_, known)| *known == name).unwrap().0 {
        Role::Importer => remote::serve(&socket),
        Role::Story => faults::play(&socket),
        Role::Exporter => remote::play_exporter(&socket),
        Role::Echo => {
            while let Some((text, _)) = remote::receive::<String>(&socket).unwrap() {
                remote::send(&socket, &text, &[]).unwrap();
            }
        }
    }
}

/// The role of a process that has one.
const ROLE: &str = "CUFRAMES_TEST_ROLE";
