use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::{mem, process, thread};

use cuframes_core::shm::Region;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use tempfile::{TempDir, tempdir};

use super::*;
use crate::rundir::Places;
use crate::testing::{child, child_argument, key, skipped};

/// Two run directories and one directory that stands for /dev/shm.
struct Host(TempDir);

impl Host {
    fn new() -> Self {
        Self(tempdir().unwrap())
    }

    fn run_dir(&self, name: &str) -> RunDir {
        run_dir(&self.0.path().join(name))
    }

    fn take(&self, run_dir: &str) -> Result<(Claimed, UnixListener), Error> {
        take(&self.run_dir(run_dir), self.0.path(), initialise)
    }

    /// Who holds the key instead of us.
    fn holder(&self, run_dir: &str) -> Holder {
        match self.take(run_dir) {
            Err(Error::AlreadyExists { holder, .. }) => holder,
            other => panic!("{other:?}"),
        }
    }

    fn region(&self) -> PathBuf {
        region_path(self.0.path(), &key())
    }

    /// The lock of the region.
    fn region_lock(&self) -> PathBuf {
        self.0.path().join(key().region_lock_file())
    }

    fn socket(&self) -> PathBuf {
        self.run_dir("a").socket_path(&key()).unwrap()
    }

    /// Leaves a region behind as a publisher would that has no lock (any more).
    fn leave_region(&self, epoch: u64, pid: u64) {
        fs::write(self.region(), vec![0; REGION_SIZE]).unwrap();
        let file = open_region(&self.region(), OFlags::RDWR).unwrap();
        let region = MappedRegion::map(&file, &self.region()).unwrap();
        fill(&region, epoch, pid);
    }

    /// Leaves what a publisher leaves that is killed. Before that, `meanwhile`.
    fn leave_publisher(&self, meanwhile: impl FnOnce()) {
        let mut child = child("stale::tests::child_publishes_until_it_is_killed", self.0.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line.ends_with("published")));
        meanwhile();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A region that has not got its name yet.
    fn hidden(&self, number: u32) -> PathBuf {
        self.0.path().join(format!("cuframes-cam0.new{number}"))
    }

    /// Leaves a socket behind that nobody listens on.
    fn leave_socket(&self) {
        // It never listens: a program that another test starts right now has a copy of it for a moment.
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(self.socket()).unwrap()).unwrap();
    }

    /// Names in a directory that should be empty but for the lock.
    fn leftovers(&self) -> Vec<String> {
        let names = |dir: &Path| -> Vec<String> {
            fs::read_dir(dir)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        };
        let mut all = names(self.0.path());
        all.extend(["a", "b"].iter().flat_map(|dir| names(&self.0.path().join(dir))));
        all.retain(|name| !["a", "b", "cam0.lock"].contains(&name.as_str()));
        all
    }
}

fn run_dir(path: &Path) -> RunDir {
    Places::from_environment(Some(path)).for_publisher(&key(), Access::default()).unwrap().clone()
}

fn take(
    run_dir: &RunDir,
    shm: &Path,
    initialise: impl FnOnce(&MappedRegion),
) -> Result<(Claimed, UnixListener), Error> {
    Claimed::take(run_dir, shm, &key(), Access::default(), &Home::new().unwrap(), initialise)
}

fn initialise(region: &MappedRegion) {
    fill(region, 77, process::id().into());
}

fn fill(region: &MappedRegion, epoch: u64, pid: u64) {
    region.header().producer_pid.store(pid, Ordering::Relaxed);
    region.header().epoch.store(epoch, Ordering::Relaxed);
    region.header().magic_version.store(u64::from(MAGIC) | 1 << 32, Ordering::Relaxed);
}

/// A process that is gone and was reaped.
fn dead_pid() -> u64 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id().into()
}

#[test]
fn a_key_that_nobody_has_is_taken_and_given_back_without_a_trace() {
    let host = Host::new();
    let (claimed, listener) = host.take("a").unwrap();
    assert_eq!(claimed.region_path(), host.region());
    assert_eq!(claimed.region().header().epoch.load(Ordering::Relaxed), 77);
    UnixStream::connect(host.socket()).unwrap();
    listener.accept().unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    for path in [host.region(), host.socket()] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    host.run_dir("b");
    drop((claimed, listener));
    assert_eq!(host.leftovers(), [""; 0]);
}

#[test]
fn a_group_gets_access_to_the_socket_and_the_region() {
    let host = Host::new();
    let access = Access { group: Some(rustix::process::getegid().as_raw()) };
    let home = Home::new().unwrap();
    let _claimed =
        Claimed::take(&host.run_dir("a"), host.0.path(), &key(), access, &home, initialise).unwrap();
    for path in [host.region(), host.socket()] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o660);
    }
}

#[test]
fn a_publisher_that_lives_keeps_its_key_whatever_the_run_directory() {
    let host = Host::new();
    let (claimed, _listener) = host.take("a").unwrap();
    assert_eq!(host.holder("a"), Holder::Lock(host.run_dir("a").lock_path(&key())));
    assert_eq!(host.holder("b"), Holder::Lock(host.region_lock()));
    fs::remove_file(host.region_lock()).unwrap();
    assert_eq!(host.holder("b"), Holder::Lock(host.region()), "it is locked, too");
    UnixStream::connect(host.socket()).unwrap();
    assert_eq!(claimed.region().header().epoch.load(Ordering::Relaxed), 77);
}

#[test]
fn what_a_killed_publisher_left_is_replaced() {
    let host = Host::new();
    host.leave_publisher(|| {
        assert_eq!(host.holder("a"), Holder::Lock(host.run_dir("a").lock_path(&key())));
        assert_eq!(host.holder("b"), Holder::Lock(host.region_lock()));
    });
    assert!(host.region().exists() && host.socket().exists());
    let (claimed, listener) = host.take("a").unwrap();
    UnixStream::connect(host.socket()).unwrap();
    drop((claimed, listener));
    assert_eq!(host.leftovers(), [""; 0]);
}

#[test]
#[ignore = "is killed: see what_a_killed_publisher_left_is_replaced"]
#[expect(clippy::print_stdout, reason = "tells the parent that it is ready")]
fn child_publishes_until_it_is_killed() {
    let dir = child_argument();
    let _claimed = take(&run_dir(&dir.join("a")), &dir, initialise).unwrap();
    println!("published");
    thread::park();
}

#[test]
fn a_region_that_a_subscriber_still_has_does_not_keep_the_key() {
    let host = Host::new();
    let (claimed, _listener) = host.take("a").unwrap();
    let fd = claimed.region_fd().try_clone_to_owned().unwrap();
    let map = Arc::clone(claimed.region());
    drop(claimed);
    host.take("a").unwrap();
    host.take("b").unwrap();
    let _ = (fd, map);
}

#[test]
fn of_a_foreign_region_only_a_dead_publisher_is_replaced() {
    let host = Host::new();
    let live = process::id().into();
    for pid in [live, 0, u64::MAX] {
        host.leave_region(0, pid);
        assert_eq!(host.holder("a"), Holder::Process { region: host.region(), pid });
    }
    host.leave_region(0, dead_pid());
    host.take("a").unwrap();

    let mut zombie = Command::new("true").spawn().unwrap();
    host.leave_region(0, zombie.id().into());
    while !is_dead(zombie.id()) {
        thread::yield_now();
    }
    host.take("a").unwrap();
    zombie.wait().unwrap();

    host.leave_region(9, live);
    host.take("a").expect("one of ours without its lock is dead, whoever has the pid now");
}

#[test]
fn a_file_that_is_no_region_is_not_deleted() {
    let host = Host::new();
    let foreign = Holder::Foreign(host.region());
    let wrong_magic = vec![1; REGION_SIZE];
    host.leave_region(9, dead_pid());
    let mut short = fs::read(host.region()).unwrap();
    short.pop();
    for content in [wrong_magic, short, Vec::new()] {
        fs::write(host.region(), &content).unwrap();
        assert_eq!(host.holder("a"), foreign);
        assert_eq!(fs::read(host.region()).unwrap(), content);
    }
    fs::remove_file(host.region()).unwrap();
    std::os::unix::fs::symlink("/dev/null", host.region()).unwrap();
    assert_eq!(host.holder("a"), foreign);
    fs::remove_file(host.region()).unwrap();
    let _socket = UnixListener::bind(host.region()).unwrap();
    assert_eq!(host.holder("a"), foreign);
    fs::remove_file(host.region()).unwrap();
    fs::create_dir(host.region()).unwrap();
    assert_eq!(host.holder("a"), foreign);
}

#[test]
fn a_socket_that_answers_is_a_publisher_and_one_that_does_not_is_stale() {
    let host = Host::new();
    fs::create_dir(host.0.path().join("a")).unwrap();
    host.leave_socket();
    host.take("a").unwrap();

    let listener = UnixListener::bind(host.socket()).unwrap();
    assert_eq!(host.holder("a"), Holder::Socket(host.socket()));
    rustix::net::listen(&listener, 0).unwrap();
    let _fills_the_backlog: Vec<_> =
        (0..2).map(|_| mem::ManuallyDrop::new(probe(&host.socket(), &key()))).collect();
    assert_eq!(host.holder("a"), Holder::Socket(host.socket()), "with a full backlog");
    drop(listener);

    fs::remove_file(host.socket()).unwrap();
    fs::write(host.socket(), "").unwrap();
    assert_eq!(host.holder("a"), Holder::Foreign(host.socket()));
}

#[test]
fn a_socket_that_refuses_stays_while_the_region_belongs_to_somebody_who_lives() {
    let host = Host::new();
    fs::create_dir(host.0.path().join("a")).unwrap();
    host.leave_socket();
    host.leave_region(0, process::id().into());
    assert!(matches!(host.holder("a"), Holder::Process { .. }));
    assert!(host.socket().exists() && host.region().exists());
}

#[test]
fn what_others_put_in_the_place_of_our_files_stays() {
    let host = Host::new();
    let (claimed, listener) = host.take("a").unwrap();
    fs::remove_file(host.region()).unwrap();
    host.leave_region(0, 1);
    fs::remove_file(host.socket()).unwrap();
    host.leave_socket();
    drop((claimed, listener));
    assert!(host.region().exists() && host.socket().exists());
}

/// P-11. In every other round both start in the same run directory, in the others only the region is common; there is
/// nothing there before, or a stale region, or one and a stale socket.
#[test]
fn of_two_racing_starters_exactly_one_wins_each_time() {
    const ROUNDS: u64 = 400;
    let host = Host::new();
    let run_dirs = [host.run_dir("a"), host.run_dir("b")];
    let barrier = Barrier::new(2);
    for round in 0..ROUNDS {
        match round % 6 {
            0 | 1 => {}
            2 | 3 => host.leave_region(round, dead_pid()),
            _ => {
                host.leave_region(round, dead_pid());
                host.leave_socket();
            }
        }
        // What a starter left that was killed is removed, whatever else is there.
        fs::write(host.hidden(0), "half a region").unwrap();
        let second = if round % 2 == 0 { &run_dirs[0] } else { &run_dirs[1] };
        let start = |run_dir: &RunDir| {
            barrier.wait();
            let result = take(run_dir, host.0.path(), initialise);
            barrier.wait();
            result
        };
        let results = thread::scope(|scope| {
            let other = scope.spawn(|| start(second));
            [start(&run_dirs[0]), other.join().unwrap()]
        });
        let winners = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(winners, 1, "round {round}: {results:?}");
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            assert!(matches!(error, Error::AlreadyExists { .. }), "round {round}: {error}");
        }
        drop(results);
        assert!(host.leftovers().iter().all(|name| name == "cam0.sock"), "{:?}", host.leftovers());
        let _ = fs::remove_file(host.socket());
    }
}

/// As above, by two processes, each of which does nothing but start.
#[test]
fn of_two_racing_processes_exactly_one_wins_each_time() {
    const ROUNDS: u32 = 400;
    let host = Host::new();
    host.run_dir("b");
    let mut racers = [(); 2].map(|()| {
        let mut command = child("stale::tests::child_races", host.0.path());
        let mut racer = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (racer.stdin.take().unwrap(), racer.stdout.take().unwrap());
        (racer, input, BufReader::new(output).lines().map(Result::unwrap))
    });
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            host.leave_region(round.into(), dead_pid());
        }
        for (_, input, _) in &mut racers {
            writeln!(input, "start").unwrap();
        }
        let outcomes = racers.each_mut().map(|(.., output)| {
            output.find_map(|line| Some(line.strip_prefix("outcome ")?.to_owned())).unwrap()
        });
        let winners = outcomes.iter().filter(|outcome| *outcome == "won").count();
        assert_eq!(winners, 1, "round {round}: {outcomes:?}");
        assert!(outcomes.iter().any(|outcome| outcome.contains("exists already")), "{outcomes:?}");
        for (_, input, _) in &mut racers {
            writeln!(input, "stop").unwrap();
        }
        for (.., output) in &mut racers {
            assert!(output.any(|line| line == "stopped"));
        }
        assert_eq!(host.leftovers(), [""; 0], "round {round}");
    }
    for (mut racer, input, _) in racers {
        drop(input);
        assert!(racer.wait().unwrap().success());
    }
}

#[test]
#[ignore = "is told when to start: see of_two_racing_processes_exactly_one_wins_each_time"]
#[expect(clippy::print_stdout, reason = "tells the parent how it went")]
fn child_races() {
    let dir = child_argument();
    let run_dir = run_dir(&dir.join("a"));
    let mut lines = io::stdin().lines();
    while lines.next().is_some() {
        let result = take(&run_dir, &dir, initialise);
        match &result {
            Ok(_) => println!("\noutcome won"),
            Err(error) => println!("\noutcome {error}"),
        }
        lines.next().unwrap().unwrap();
        drop(result);
        println!("stopped");
    }
}

#[test]
fn what_a_starter_left_that_was_killed_before_its_region_had_its_name_is_removed() {
    let host = Host::new();
    let mut child = child("stale::tests::child_never_finishes_its_region", host.0.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.ends_with("begun")));
    assert_eq!(host.holder("b"), Holder::Lock(host.region_lock()));
    // Even if somebody deletes that.
    fs::remove_file(host.region_lock()).unwrap();
    host.take("b").unwrap();
    assert!(host.hidden(0).exists(), "it lives, and has the lock");
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(host.hidden(7), "another").unwrap();
    std::os::unix::fs::symlink("/dev/null", host.hidden(8)).unwrap();
    host.take("b").unwrap();
    assert!(!host.hidden(0).exists() && !host.hidden(7).exists());
    assert!(fs::symlink_metadata(host.hidden(8)).is_ok(), "that is not one of ours");
}

#[test]
#[ignore = "is killed: see what_a_starter_left_that_was_killed_before_its_region_had_its_name_is_removed"]
#[expect(clippy::print_stdout, reason = "tells the parent that it is ready")]
fn child_never_finishes_its_region() {
    let dir = child_argument();
    let _ = take(&run_dir(&dir.join("a")), &dir, |_| {
        println!("begun");
        loop {
            thread::park();
        }
    });
}

/// In /dev/shm everybody may create files, and nobody may delete those of others.
#[test]
fn what_another_user_left_is_not_touched_and_its_name_is_told() {
    let host = Host::new();
    if !geteuid().is_root() {
        return skipped("leftovers of another user", "only root can become one");
    }
    fs::set_permissions(host.0.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    host.leave_region(9, dead_pid());
    fs::set_permissions(host.region(), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(host.hidden(0), "half a region").unwrap();
    let mut command = child("stale::tests::child_starts_as_nobody", host.0.path());
    let Ok(output) = command.uid(65534).stdout(Stdio::piped()).output() else {
        return skipped("leftovers of another user", "it may not run this program");
    };
    let output = String::from_utf8(output.stdout).unwrap();
    let expected = format!(
        "outcome not allowed to look at the region {}; check its owner and mode, and who we run as",
        host.region().display()
    );
    assert!(output.lines().any(|line| line == expected), "{output}");
    assert!(host.region().exists() && host.hidden(0).exists());

    // Root may, and the lock says that it is stale; but what is half done could be of anybody.
    std::os::unix::fs::chown(host.region(), Some(65534), None).unwrap();
    std::os::unix::fs::chown(host.hidden(0), Some(65534), None).unwrap();
    host.take("a").unwrap();
    assert!(host.hidden(0).exists());
}

#[test]
#[ignore = "needs to be another user: see what_another_user_left_is_not_touched_and_its_name_is_told"]
#[expect(clippy::print_stdout, reason = "tells the parent how it went")]
fn child_starts_as_nobody() {
    let dir = child_argument();
    let error = take(&run_dir(&dir.join("of-nobody")), &dir, initialise).unwrap_err();
    println!("\noutcome {error}");
}

mod left;
