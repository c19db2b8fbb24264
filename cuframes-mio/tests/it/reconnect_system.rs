//! A subscriber that goes on with the next publisher, and the system: inotify and its absence, directories that come and
//! go, descriptors and maps.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use cuframes_mio::core::Policy;
use cuframes_mio::{Reconnect, Subscriber};
use rustix::fs::inotify::{self, CreateFlags};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::common::{NEWEST, Running, STRICT, Stream, check, maps, next, publish, told, until};
use crate::other::Other;

/// Nothing but inotify makes it look again.
fn only_inotify() -> Reconnect {
    let mut reconnect = Reconnect::default();
    reconnect.first_delay = Duration::from_secs(3600);
    reconnect
}

#[test]
fn a_socket_that_appears_is_heard_of() {
    let stream = Stream::new();
    let run_dir = stream.dir.path().join("run");
    fs::create_dir(&run_dir).unwrap();
    let builder = stream.subscriber("ear", NEWEST).run_dir(&run_dir).reconnect(only_inotify());
    let mut subscriber = builder.start().unwrap();
    let mut publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
    publish(&mut publisher);
    assert!(subscriber.next(Duration::from_millis(20)).unwrap().is_none());
    // At once, and when somebody listens already.
    fs::rename(stream.socket(), run_dir.join(stream.key.socket_file())).unwrap();
    check(&next(&mut subscriber));
    drop(subscriber);
}

#[test]
fn a_run_directory_that_appears_is_heard_of() {
    let stream = Stream::new();
    let [above, before] = ["above", "before"].map(|name| stream.dir.path().join(name));
    fs::create_dir_all(&above).unwrap();
    let run_dir = above.join("run");
    let builder = stream.subscriber("ear", NEWEST).run_dir(&run_dir).reconnect(only_inotify());
    let mut subscriber = builder.start().unwrap();
    let builder = stream.publisher(2, Policy::DROP_OLDEST).run_dir(&before);
    let mut publisher = builder.create().unwrap().serve().unwrap();
    publish(&mut publisher);
    assert!(subscriber.next(Duration::from_millis(20)).unwrap().is_none());
    fs::rename(&before, &run_dir).unwrap();
    check(&next(&mut subscriber));
    drop(subscriber);
}

#[test]
fn a_run_directory_may_be_removed_and_made_again() {
    let stream = Stream::new();
    let run_dir = stream.dir.path().join("run");
    let mut subscriber = stream.reconnecting(NEWEST).run_dir(&run_dir).start().unwrap();
    for _ in 0..5 {
        let builder = stream.publisher(2, Policy::DROP_OLDEST).run_dir(&run_dir);
        let mut publisher = builder.create().unwrap().serve().unwrap();
        publish(&mut publisher);
        check(&next(&mut subscriber));
        let stopping = std::thread::spawn(move || drop(publisher));
        until("the end of it", || {
            assert!(subscriber.next(Duration::from_millis(1)).unwrap().is_none());
            !subscriber.is_attached()
        });
        stopping.join().unwrap();
        fs::remove_dir_all(&run_dir).unwrap();
        assert!(subscriber.next(Duration::from_millis(5)).unwrap().is_none());
    }
    assert_eq!(subscriber.stats().reconnects, 4);
}

/// Makes a system call of this thread fail; `false` if that can't be done here.
fn refuse(call: i64, errno: i32) -> bool {
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let rules = [(call, Vec::new())].into();
    let refused = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).is_ok()
}

/// Three publishers that are killed, and a subscriber in a thread that has no inotify.
fn goes_on_without(call: i64, errno: i32) {
    let (key, dir) = told();
    if !refuse(call, errno) {
        println!("SKIPPED: system calls of a thread can't be refused here");
        return;
    }
    let watch = inotify::init(CreateFlags::CLOEXEC)
        .and_then(|inotify| inotify::add_watch(inotify, "/", inotify::WatchFlags::CREATE));
    assert_eq!(watch.unwrap_err().raw_os_error(), errno);
    let mut subscriber =
        Subscriber::builder(key).run_dir(&dir).reconnect(Reconnect::default()).start().unwrap();
    println!("\nready");
    for reconnects in 0..3 {
        check(&next(&mut subscriber));
        assert_eq!(subscriber.stats().reconnects, reconnects);
        println!("\nhas a frame");
        until("the end of its publisher", || {
            let _ = subscriber.next(Duration::from_millis(1)).unwrap();
            !subscriber.is_attached()
        });
    }
    println!("\ndone");
}

#[test]
#[ignore = "needs a process of its own: see without_inotify_it_looks_now_and_then"]
fn child_has_no_inotify_instance() {
    goes_on_without(libc::SYS_inotify_init1, libc::EMFILE);
}

#[test]
#[ignore = "needs a process of its own: see without_inotify_it_looks_now_and_then"]
fn child_has_no_inotify_watch() {
    goes_on_without(libc::SYS_inotify_add_watch, libc::ENOSPC);
}

#[test]
fn without_inotify_it_looks_now_and_then() {
    for test in ["child_has_no_inotify_instance", "child_has_no_inotify_watch"] {
        let stream = Stream::new();
        let mut subscriber = Other::start(&format!("reconnect_system::{test}"), &stream);
        for _ in 0..3 {
            let publisher = Other::start("processes::child_publishes", &stream);
            subscriber.wait_for_line("has a frame");
            publisher.kill();
        }
        subscriber.wait_for_line("done");
    }
}

#[test]
#[ignore = "counts what its process has: see a_hundred_reconnects_leave_nothing_behind"]
fn child_reconnects_a_hundred_times() {
    let (key, dir) = told();
    let stream = Stream::of(key.clone(), &dir);
    let mut subscriber = stream.reconnecting(STRICT).start().unwrap();
    let links = || {
        let fds = fs::read_dir("/proc/self/fd").unwrap();
        fds.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok()).collect::<Vec<_>>()
    };
    let have = || (links().len(), maps(&key));
    let mut first = None;
    for number in 0..101 {
        // One is killed, the next one stops with a word; and each time a frame is in hand.
        let (mut killed, mut stopped) = (None, None);
        if number % 2 == 0 {
            killed = Some(Other::start("processes::child_publishes", &stream));
        } else {
            let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap().serve().unwrap();
            publish(stopped.insert(publisher));
        }
        let held = next(&mut subscriber);
        assert!(
            !links().iter().any(|link| link.as_os_str() == "anon_inode:inotify"),
            "nothing is watched while there is a publisher"
        );
        let stopping = std::thread::spawn(move || (killed.take().map(Other::kill), drop(stopped)));
        until("the end of its publisher", || {
            let _ = subscriber.next(Duration::from_millis(1)).unwrap();
            !subscriber.is_attached()
        });
        check(&held);
        drop(held);
        stopping.join().unwrap();
        // It may have connected once more before the socket of the dying one was closed.
        until("an attempt that finds nobody", || {
            assert!(subscriber.next(Duration::from_millis(1)).unwrap().is_none());
            subscriber.trouble().is_some()
        });
        if number % 10 == 0 {
            assert_eq!(*first.get_or_insert_with(have), have(), "after {number}");
        }
    }
    assert_eq!(have().1, 0);
    assert_eq!((subscriber.stats().reconnects, subscriber.stats().mapped_bytes), (100, 0));
}

#[test]
fn a_hundred_reconnects_leave_nothing_behind() {
    let stream = Stream::new();
    let test = "reconnect_system::child_reconnects_a_hundred_times";
    let status = Running::start(stream.child(test).stdout(Stdio::null())).end();
    assert!(status.success(), "{status}");
}
