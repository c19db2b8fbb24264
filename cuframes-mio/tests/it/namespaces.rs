//! Processes in mount and pid namespaces of their own, as containers have them: what they share, and file systems that
//! are full or can't be written (X-1, D-25, P-13).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{LONG, STRICT, Stream, check, meta, told};
use crate::other::{Other, hear, tell};
use cuframes_mio::core::error::ErrorCode;
use cuframes_mio::{Publisher, Subscriber};

/// A command that runs the test `name` in namespaces of its own, after the shell command `setup`. `None` where that is not
/// permitted.
pub(crate) fn inside(stream: &Stream, setup: &str, name: &str) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--", "sh", "-c"]);
        command
    };
    let tried = unshare().arg("mount -t tmpfs tmpfs /dev/shm").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        println!("SKIPPED: not permitted to make namespaces and mount in them");
        return None;
    }
    let child = stream.child(name);
    let mut command = unshare();
    command.arg(format!("{setup} && exec \"$0\" \"$@\"")).arg(child.get_program()).args(child.get_args());
    command.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(command)
}

/// What stands for a container whose only volume is the directory with the socket.
const OWN_SHM: &str = "mount -t tmpfs tmpfs /dev/shm";

#[test]
#[ignore = "needs namespaces of its own: started by the test below"]
fn child_checks_frames() {
    let (key, dir) = told();
    let region = Path::new("/dev/shm").join(key.region_file());
    let mut subscriber = Subscriber::builder(key).mode(STRICT).run_dir(dir).connect().unwrap();
    assert!(!region.exists(), "the region can't be found by its name here");
    tell("ready");
    for _ in 0..100 {
        check(&subscriber.next(LONG).unwrap().expect("a frame in time"));
    }
    tell("checked");
    let _ = hear();
}

#[test]
fn two_processes_that_share_only_the_directory_with_the_socket_exchange_frames() {
    let stream = Stream::new();
    let Some(mut publisher) = inside(&stream, OWN_SHM, "processes::child_publishes") else { return };
    let _publisher = Other::run(&mut publisher);
    assert!(!stream.region().exists(), "its /dev/shm is not ours");
    let mut checks = inside(&stream, OWN_SHM, "namespaces::child_checks_frames").unwrap();
    for _ in 0..3 {
        let mut subscriber = Other::run(&mut checks);
        subscriber.wait_for_line("checked");
        // The next one gets its bit, or another: the publisher notices across the namespaces, or lets it rest.
        subscriber.kill();
    }
    let mut here = stream.subscriber("here", STRICT).connect().unwrap();
    check(&here.next(LONG).unwrap().expect("a frame in time"));
}

#[test]
#[ignore = "needs file systems of its own: started by the tests below"]
fn child_can_not_publish() {
    let (key, dir) = told();
    let region = key.region_file();
    let error = Publisher::builder(key, meta()).run_dir(dir.join("run")).create().unwrap_err();
    let left =
        fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with(&region)).count(), 0, "something is left behind");
    tell("ready");
    tell(&format!("{} {error}", error.code().0));
    let _ = hear();
}

/// The error of a publisher that starts after `setup`, in which `$RUN` is its run directory. `None` if it was skipped.
fn error_after(stream: &Stream, setup: &str) -> Option<(ErrorCode, String)> {
    let run = stream.dir.path().join("run");
    fs::create_dir(&run).unwrap();
    let mut command =
        inside(stream, &setup.replace("$RUN", run.to_str().unwrap()), "namespaces::child_can_not_publish")?;
    let line = Other::run(&mut command).hear();
    let (code, text) = line.split_once(' ').unwrap();
    Some((ErrorCode(code.parse().unwrap()), text.to_owned()))
}

#[test]
fn a_full_dev_shm_is_an_error_that_says_how_much_is_needed() {
    let stream = Stream::new();
    let Some((code, text)) = error_after(&stream, "mount -t tmpfs -o size=4k tmpfs /dev/shm") else { return };
    assert_eq!(code, ErrorCode::OUT_OF_MEMORY, "{text}");
    assert!(text.contains(stream.key.as_str()), "{text}");
    assert!(text.contains("needs 7424 bytes, 4096 are available; free some or enlarge it"), "{text}");
}

#[test]
fn a_run_directory_that_can_not_be_written_is_an_error_that_names_it() {
    let stream = Stream::new();
    let Some((code, text)) = error_after(&stream, "mount -t tmpfs -o ro tmpfs $RUN") else { return };
    assert_eq!(code, ErrorCode::IO, "{text}");
    let expected = format!("can't create files in {}: ", stream.dir.path().join("run").display());
    assert!(text.starts_with(&expected) && text.ends_with("; use a directory that can be written"), "{text}");
}

#[test]
fn a_full_run_directory_is_an_error_that_names_the_file() {
    // No file fits, or the lock does and the socket does not.
    for (inodes, file) in [(1, "lock"), (2, "sock")] {
        let stream = Stream::new();
        let setup = format!("mount -t tmpfs -o nr_inodes={inodes} tmpfs $RUN");
        let Some((code, text)) = error_after(&stream, &setup) else { return };
        assert_eq!(code, ErrorCode::IO, "{text}");
        assert!(text.contains(&format!("{}.{file}: ", stream.key)), "{text}");
        assert!(text.ends_with("; free some space or files there (df -h, df -i)"), "{text}");
    }
}
