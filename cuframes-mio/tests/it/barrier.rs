//! Starting together, over real sockets: a publisher's barrier, and subscribers that join it.

use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use cuframes_mio::barrier::{Barrier, BarrierError, FrontendEvent, Join, Progress};
use cuframes_mio::core::Policy;
use cuframes_mio::net::Endpoint;
use cuframes_mio::{EventSource, Reconnect, now};
use mio::{Events, Poll, Token};

use crate::common::{LONG, STRICT, Stream, check, next, publish, until};

/// Any free port of loopback.
fn anywhere() -> Endpoint {
    "tcp://127.0.0.1:0".parse().unwrap()
}

/// A port on which nobody listens.
fn nowhere() -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Endpoint::Tcp(listener.local_addr().unwrap())
}

/// A socket of the test's own directory.
fn file(dir: &Path) -> Endpoint {
    dir.join("start").as_path().into()
}

#[test]
fn every_subscriber_sees_the_first_frame_whoever_comes_first() {
    for (first_index, endpoint) in [(0, None), (7, Some(nowhere()))] {
        let stream = Stream::new();
        let endpoint = endpoint.unwrap_or_else(|| file(stream.dir.path()));
        let join = |index: u16| {
            let subscriber = stream.subscriber(&format!("s{index}"), STRICT);
            let builder = Join::builder(endpoint.clone(), index).timeout(LONG).name(format!("s{index}"));
            thread::spawn(move || {
                let mut subscriber = builder.subscribe(subscriber).unwrap();
                let frame = next(&mut subscriber);
                check(&frame);
                frame.seq()
            })
        };
        // Some wait for the publisher, and one for whom it waits.
        let mut early: Vec<_> = (first_index..first_index + 3).map(join).collect();
        let barrier = Barrier::builder(endpoint.clone(), 4).first_index(first_index).timeout(LONG);
        let publisher = stream.publisher(4, Policy::STRICT_WAIT).create().unwrap();
        let mut seen = Vec::new();
        let mut publisher = barrier
            .serve(publisher, |event| {
                if let FrontendEvent::Progress { index, progress: Progress::Ready } = event {
                    seen.push(*index);
                    if seen.len() == 3 {
                        early.push(join(first_index + 3));
                    }
                }
            })
            .unwrap();
        assert_eq!(publisher.members().len(), 4);
        publish(&mut publisher);
        assert!(early.into_iter().all(|subscriber| subscriber.join().unwrap() == 1));
        seen.sort_unstable();
        assert_eq!(seen, (first_index..first_index + 4).collect::<Vec<_>>());
    }
}

#[test]
fn who_is_there_hears_who_was_missing() {
    let stream = Stream::new();
    let endpoint = file(stream.dir.path());
    let subscriber = stream.subscriber("eye", STRICT);
    let joining = Join::builder(endpoint.clone(), 1).timeout(LONG);
    let joining = thread::spawn(move || joining.subscribe(subscriber).unwrap_err().to_string());
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap();
    let barrier = Barrier::builder(endpoint, 2).timeout(Duration::from_millis(700));
    let mut has_joined = false;
    let error = barrier.serve(publisher, |event| {
        has_joined |= matches!(event, FrontendEvent::Progress { progress: Progress::Ready, .. });
    });
    let missing = "no READY within 700ms from 0 (nothing heard)";
    let error = error.unwrap_err();
    assert!(matches!(error, BarrierError::Failed { .. }) && error.to_string().ends_with(missing), "{error}");
    // Where the machine is slow it may not have come to us in time, but then nothing is checked here.
    let heard = joining.join().unwrap();
    assert!(
        heard.ends_with(&format!("the frontend cancelled the start: {missing}")) || !has_joined,
        "{heard}"
    );
    stream.assert_nothing_left();
}

#[test]
fn a_subscriber_that_can_not_subscribe_fails_the_start_and_says_why() {
    let (stream, elsewhere) = (Stream::new(), tempfile::tempdir().unwrap());
    let endpoint = file(stream.dir.path());
    let subscriber = stream.subscriber("lost", STRICT).run_dir(elsewhere.path());
    let joining = Join::builder(endpoint.clone(), 0).timeout(LONG);
    let joining = thread::spawn(move || joining.subscribe(subscriber).unwrap_err());
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap();
    let error = Barrier::builder(endpoint, 1).timeout(LONG).serve(publisher, |_| {}).unwrap_err();
    let BarrierError::Stream(reason) = joining.join().unwrap() else { panic!("another error") };
    assert!(error.to_string().ends_with(&format!("failed: participant 0 cancelled: {reason}")), "{error}");
}

#[test]
fn a_subscriber_that_waits_for_its_publisher_hears_that_the_start_is_off() {
    let (stream, elsewhere) = (Stream::new(), tempfile::tempdir().unwrap());
    let endpoint = file(stream.dir.path());
    let mut barrier = Barrier::builder(endpoint.clone(), 1).timeout(LONG).listen().unwrap();
    // It would wait for a publisher for ever.
    let subscriber =
        stream.subscriber("eye", STRICT).run_dir(elsewhere.path()).reconnect(Reconnect::default());
    let joining = Join::builder(endpoint, 0).timeout(LONG);
    let joining = thread::spawn(move || joining.subscribe(subscriber.timeout(LONG)).unwrap_err().to_string());
    until("HELLO", || {
        let event = barrier.next_event(Some(Duration::from_millis(20))).unwrap();
        matches!(event, Some(FrontendEvent::Progress { progress: Progress::Greeted, .. }))
    });
    barrier.cancel("enough").unwrap();
    barrier.finish().unwrap();
    let error = joining.join().unwrap();
    // It may not have said that it knows the words, and then sees only the end.
    assert!(error.contains("cancelled: enough") || error.contains("closed the connection"), "{error}");
}

#[test]
fn an_address_that_is_a_name_is_called_that() {
    let endpoint = anywhere();
    let mut barrier = Barrier::builder(endpoint, 1).timeout(LONG).listen().unwrap();
    let mut join = Join::builder(barrier.endpoint().clone(), 0).timeout(LONG).start().unwrap();
    let joining = thread::spawn(move || {
        let mut init = join.wait_init().unwrap();
        init.addresses.inputs = vec!["tcp://localhost:5555".into()];
        join.ready(&init).unwrap_err().to_string()
    });
    let error = barrier.wait(|_| {}).unwrap_err().to_string();
    let said = joining.join().unwrap();
    assert!(
        said.contains("\"tcp://localhost:5555\" is no address: its host is not written in numbers"),
        "{said}"
    );
    assert!(error.ends_with(&format!("participant 0 cancelled: {said}")), "{error}");
}

#[test]
fn the_barrier_of_another_stream_is_not_joined() {
    let (stream, other) = (Stream::new(), Stream::new());
    let endpoint = file(stream.dir.path());
    let joining = Join::builder(endpoint.clone(), 0).timeout(LONG);
    let subscriber = other.subscriber("astray", STRICT);
    let joining = thread::spawn(move || joining.subscribe(subscriber).unwrap_err());
    let publisher = stream.publisher(2, Policy::DROP_OLDEST).create().unwrap();
    let mut barrier = Barrier::builder(endpoint, 1).timeout(LONG).stream(&publisher).listen().unwrap();
    let mut lost = false;
    until("the end of the one who is wrong here", || {
        let event = barrier.next_event(Some(Duration::from_millis(20))).unwrap();
        lost |= matches!(event, Some(FrontendEvent::Progress { index: 0, progress: Progress::Lost }));
        lost
    });
    assert!(matches!(joining.join().unwrap(), BarrierError::OtherStream { .. }));
}

#[test]
fn a_participant_alone_says_what_it_waited_for_and_why_it_could_not_connect() {
    let join = |endpoint: Endpoint| {
        let mut join = Join::builder(endpoint, 3).timeout(Duration::from_millis(300)).start().unwrap();
        join.wait_init().unwrap_err().to_string()
    };
    let error = join(nowhere());
    assert!(error.contains("waited 300ms for a connection to the handshake socket"), "{error}");
    assert!(error.contains("Connection refused"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let error = join(file(dir.path()));
    assert!(error.contains("No such file"), "{error}");
    // Somebody is there, who says nothing, or speaks something else.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = join(Endpoint::Tcp(listener.local_addr().unwrap()));
    assert!(error.contains("nothing there answers"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut socket, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = join(endpoint);
    assert!(error.contains("does not speak ZMTP 3 without security"), "{error}");
    server.join().unwrap();
}

#[test]
fn both_sides_live_in_one_loop_of_the_callers() {
    let mut poll = Poll::new().unwrap();
    let barrier = Barrier::builder(anywhere(), 2).timeout(LONG).listen().unwrap();
    let endpoint = barrier.endpoint().clone();
    let mut frontend = barrier.into_driver();
    let mut participants: Vec<_> = (0..2)
        .map(|index| Join::builder(endpoint.clone(), index).timeout(LONG).start().unwrap().into_driver())
        .collect();
    frontend.register(poll.registry(), Token(0)).unwrap();
    let tokens = tokens(&frontend);
    for (n, participant) in participants.iter_mut().enumerate() {
        participant.register(poll.registry(), Token((n + 1) * tokens)).unwrap();
    }
    let (mut events, mut started) = (Events::with_capacity(64), 0);
    let mut again: Vec<Token> = Vec::new();
    while started < 3 {
        let due = participants
            .iter()
            .map(EventSource::poll_timeout)
            .chain([frontend.poll_timeout()])
            .flatten()
            .min();
        let wait =
            if again.is_empty() { due.map(|due| due.saturating_since(now())) } else { Some(Duration::ZERO) };
        poll.poll(&mut events, wait).unwrap();
        let ready = std::mem::take(&mut again).into_iter().chain(events.iter().map(mio::event::Event::token));
        for token in ready.collect::<Vec<_>>() {
            let turn = match (token.0 / tokens).checked_sub(1) {
                None => frontend.handle_event(token, now()).unwrap(),
                Some(n) => participants[n].handle_event(token, now()).unwrap(),
            };
            if turn == cuframes_mio::Turn::Again {
                again.push(token);
            }
        }
        frontend.handle_timeout(now());
        while let Some(event) = frontend.poll_event() {
            started += usize::from(matches!(event, FrontendEvent::Started(ref who) if who.len() == 2));
            assert!(!matches!(event, FrontendEvent::Failed(_)), "{event:?}");
        }
        for (rank, participant) in (0..).zip(&mut participants) {
            participant.handle_timeout(now());
            while let Some(event) = participant.poll_event() {
                use cuframes_mio::barrier::{ParticipantEvent, Registration};
                match event {
                    ParticipantEvent::Init(_) => {
                        participant
                            .command(now(), |machine| machine.ready(now(), Registration::new(rank, 2)));
                    }
                    ParticipantEvent::Started { confirmed } => {
                        assert!(confirmed);
                        started += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// How many tokens a source uses.
const fn tokens<T: EventSource>(_: &T) -> usize {
    T::TOKENS
}

#[test]
fn a_barrier_is_refused_where_nobody_could_come_to_it() {
    let listen = |endpoint: &str, count| {
        Barrier::builder(endpoint.parse().unwrap(), count).listen().unwrap_err().to_string()
    };
    assert!(listen("tcp://0.0.0.0:0", 1).contains("name the address of one interface"));
    assert!(listen("tcp://127.0.0.1:0", 0).contains("one participant at least"));
    assert!(listen("tcp://127.0.0.1:0", 301).contains("300 may be"));
    assert!(listen("tcp://203.0.113.77:0", 1).contains("Cannot assign requested address"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(listen(&format!("tcp://{}", taken.local_addr().unwrap()), 1).contains("somebody else does"));
}
