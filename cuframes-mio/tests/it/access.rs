//! Other users: who may find a stream, connect to it, and subscribe (D-15).

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::common::{LONG, STRICT, Stream, check, fill, told};
use crate::other::{Other, hear, tell};
use cuframes_mio::core::Policy;
use cuframes_mio::{Publisher, Subscriber};

const USER: u32 = 65534;
const OTHER_USER: u32 = 65533;
const GROUP: u32 = 65534;

#[test]
#[ignore = "needs to be another user: started by the tests below"]
fn child_subscribes() {
    let (key, dir) = told();
    let subscriber = Subscriber::builder(key).mode(STRICT).run_dir(dir.join("run")).connect();
    tell("ready");
    match subscriber {
        Ok(mut subscriber) => {
            check(&subscriber.next(LONG).unwrap().expect("a frame in time"));
            tell("checked");
        }
        Err(error) => tell(&error.to_string()),
    }
    let _ = hear();
}

/// What a subscriber with this user and [`GROUP`] gets. `None`, with a word, where that can't be tried.
fn outcome(stream: &Stream, user: u32) -> Option<String> {
    let mut command = stream.child("access::child_subscribes");
    command.uid(user).gid(GROUP);
    let mut trial = stream.child("no such test");
    if let Err(error) = trial.uid(user).gid(GROUP).stdout(Stdio::null()).status() {
        println!("SKIPPED: user {user} can't run this program: {error}");
        return None;
    }
    Some(Other::run(&mut command).hear())
}

/// A stream whose run directory everybody may go to, and the publisher makes.
fn stream() -> Option<Stream> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can become another user");
        return None;
    }
    let stream = Stream::new();
    fs::set_permissions(stream.dir.path(), Permissions::from_mode(0o755)).unwrap();
    Some(stream)
}

fn publisher(stream: &Stream) -> cuframes_mio::PublisherBuilder {
    stream.publisher(2, Policy::DROP_OLDEST).run_dir(stream.dir.path().join("run"))
}

fn publish(publisher: Publisher) -> cuframes_mio::ServedPublisher {
    let mut publisher = publisher.serve().unwrap();
    let mut claim = publisher.claim().unwrap();
    fill(&mut claim);
    claim.commit();
    publisher
}

#[test]
fn by_default_other_users_do_not_even_reach_the_socket() {
    let Some(stream) = stream() else { return };
    let publisher = publish(publisher(&stream).allow_uids([USER]).create().unwrap());
    let Some(outcome) = outcome(&stream, USER) else { return };
    assert!(outcome.starts_with("not allowed to connect to "), "{outcome}");
    assert_eq!(publisher.stats().joined, 0);
}

#[test]
fn with_a_group_those_users_may_subscribe_that_are_named() {
    let Some(stream) = stream() else { return };
    let publisher = publish(publisher(&stream).group(GROUP).allow_uids([USER]).create().unwrap());
    let run_dir = stream.dir.path().join("run");
    let modes =
        [(&run_dir, 0o750), (&run_dir.join(stream.key.socket_file()), 0o660), (&stream.region(), 0o660)];
    for (path, mode) in modes {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.gid()), (mode, GROUP), "{}", path.display());
    }
    let Some(allowed) = outcome(&stream, USER) else { return };
    assert_eq!(allowed, "checked");
    let refused = outcome(&stream, OTHER_USER).unwrap();
    let expected = format!(
        "stream {}: refused with PERMISSION: this user may not subscribe; \
         run as the publisher's user, or let it allow this one",
        stream.key
    );
    assert_eq!(refused, expected);
    assert_eq!((publisher.stats().joined, publisher.stats().refused.permission), (1, 1));
}
