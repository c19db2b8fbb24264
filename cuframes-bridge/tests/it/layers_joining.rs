//! How workers come to a coordinator, and go: who is welcome, who replaces whom, and when one comes back.

use std::time::Duration;

use cuframes_bridge::layers::{CoordinatorConfig, Request, Trouble, Worker};
use cuframes_bridge::layers::{CoordinatorEvent, Fault, HelloError, RouteError, SubmitError, WorkerEvent};
use cuframes_bridge::wire::{FrameType, Hello, Message, WireError};
use cuframes_core::Instant;
use cuframes_core::streams::{Action, Machine as _};

use crate::bytes::{vector, whole};
use crate::layers_peers::{coordinator_config, encoded, messages, worker_config};
use crate::layers_world::{Caller, Net, Who};

const C: Who = Who::Coordinator(0);

fn hello() -> Hello {
    worker_config((21, 42), 9).hello()
}

fn with_coordinator(change: impl FnOnce(&mut CoordinatorConfig)) -> Net {
    let mut net = Net::new();
    let mut config = coordinator_config();
    change(&mut config);
    net.coordinator(config);
    net
}

/// Why a connection to the coordinator ended; `None` if it has not.
fn left(net: &mut Net, caller: Caller) -> Option<Fault> {
    let its = net.conn(caller);
    let faults = net.events(0).into_iter().filter_map(|event| match event {
        CoordinatorEvent::Left { conn, fault } if conn == its => Some(fault),
        _ => None,
    });
    let faults: Vec<Fault> = faults.collect();
    assert!(faults.len() <= 1, "it left twice");
    assert_eq!(net.is_closed(caller), !faults.is_empty());
    faults.into_iter().next()
}

/// The numbers of the workers.
fn workers(net: &Net) -> Vec<u64> {
    net.coordinators[0].machine.registry().workers().iter().map(|member| member.conn.get()).collect()
}

#[test]
fn a_worker_says_who_it_is_in_the_bytes_of_the_original_and_hears_nothing() {
    let mut net = Net::new();
    net.listen("c", Who::Hand);
    let mut config = worker_config((21, 42), 41_001);
    config.model_name = "deepseek4-flash".into();
    config.ctx_size = 32_768;
    net.worker(config);
    let caller = net.called("c");
    assert_eq!(net.heard(caller), vector!("hello"));
    assert_eq!(net.worker_events(0), [WorkerEvent::Joined]);
    assert!(net.workers[0].machine.is_joined());

    let mut net = with_coordinator(|config| {
        config.model_name = "deepseek4-flash".into();
        config.ctx_size = 32_768;
    });
    let caller = net.call(C);
    assert!(net.say(caller, &vector!("hello")).is_empty());
    let conn = net.conn(caller);
    let joined = CoordinatorEvent::Joined {
        conn,
        hello: Box::new(net.coordinators[0].machine.registry().workers()[0].hello.clone()),
    };
    assert_eq!(net.events(0), [CoordinatorEvent::Connected { conn }, joined]);
    // The first layers are missing.
    let error = net.coordinators[0].machine.path().unwrap_err();
    assert_eq!(error, RouteError::Missing { layer: 0, unplaced: 0 });
}

#[test]
fn a_worker_that_does_not_fit_is_told_why() {
    let same = |change: fn(&mut Hello), error: HelloError, text: &str| {
        let mut net = with_coordinator(|_| {});
        let caller = net.call(C);
        let mut hello = hello();
        change(&mut hello);
        let heard = net.say(caller, &encoded(&Message::Hello(hello)));
        assert_eq!(messages(&heard), [Message::Error(text.into())]);
        assert_eq!(left(&mut net, caller), Some(Fault::Hello(error)));
        assert!(workers(&net).is_empty());
        heard
    };
    let model = HelloError::Model { worker: 2, coordinator: 1 };
    let text = "model id mismatch: worker=2 coordinator=1";
    assert_eq!(same(|hello| hello.model_id = 2, model, text), vector!("error"));
    let name = HelloError::Name { worker: "n".into(), coordinator: "m".into() };
    same(|hello| hello.model_name = "n".into(), name, "model name mismatch: worker=n coordinator=m");
    let layers = HelloError::Layers { worker: 44, coordinator: 43 };
    same(|hello| hello.n_layers = 44, layers, "layer count mismatch: worker=44 coordinator=43");
    same(|hello| hello.quant_bits = 3, HelloError::Quant(3), "invalid quantization: 3 bits, not 2 or 4");
    same(|hello| hello.has_output = 2, HelloError::HasOutput(2), "invalid has_output: 2, not 0 or 1");
    same(|hello| hello.has_hidden = 2, HelloError::HasHidden(2), "invalid has_hidden: 2, not 0 or 1");
    let range = |start, end| HelloError::Range { start, end, n_layers: 43 };
    same(|hello| hello.layer_start = 43, range(43, 42), "invalid layer range: 43..42 of 43 layers");
    same(|hello| hello.layer_end = 43, range(21, 43), "invalid layer range: 21..43 of 43 layers");
    let output = HelloError::Output { end: 41, last: 42 };
    let text = "output head without the last layer: layers up to 41, the last one is 42";
    same(|hello| hello.layer_end = 41, output, text);
    let context = HelloError::Context { worker: 99, coordinator: 100 };
    same(|hello| hello.ctx_size = 99, context, "context too small: worker=99 coordinator=100");
    same(|hello| hello.listen_port = 0, HelloError::Port(0), "invalid data port: 0");
    same(|hello| hello.listen_port = 65_536, HelloError::Port(65_536), "invalid data port: 65536");
    // The first of several that are wrong is named.
    let change = |hello: &mut Hello| {
        hello.listen_port = 0;
        hello.n_layers = 1;
    };
    let layers = HelloError::Layers { worker: 1, coordinator: 43 };
    same(change, layers, "layer count mismatch: worker=1 coordinator=43");
}

#[test]
fn what_is_no_hello_closes_the_connection_without_a_word() {
    let long = whole(FrameType::HELLO, &[b'x'; 168]);
    let short = whole(FrameType::HELLO, &[0; 39]);
    let mut nul = encoded(&Message::Hello(hello()));
    *nul.last_mut().unwrap() = 0;
    let mut name = encoded(&Message::Hello(hello()));
    name[12 + 39] = 2;
    let stranger = encoded(&Message::Error("hi".into()));
    let unknown = whole(FrameType(99), b"x");
    for bytes in [
        long,
        short,
        nul,
        name,
        stranger,
        unknown,
        vector!("work"),
        vector!("save_request"),
        b"GET / HTTP/1".into(),
    ] {
        let mut net = with_coordinator(|_| {});
        let caller = net.call(C);
        assert!(net.say(caller, &bytes).is_empty());
        let fault = left(&mut net, caller);
        assert!(
            matches!(fault, Some(Fault::Frame(_) | Fault::Unexpected(_) | Fault::Remote(_))),
            "{fault:?}"
        );
    }
}

#[test]
fn whoever_says_nothing_in_time_is_closed() {
    let mut net = with_coordinator(|_| {});
    let (silent, slow, worker) = (net.call(C), net.call(C), net.call(C));
    let bytes = encoded(&Message::Hello(hello()));
    net.say(worker, &bytes);
    net.say(slow, &bytes[..20]);
    net.pass(Duration::from_millis(4999));
    assert!(!net.is_closed(silent) && !net.is_closed(slow));
    assert_eq!(net.coordinators[0].machine.poll_timeout(), Some(net.now + Duration::from_millis(1)));
    net.pass(Duration::from_millis(1));
    let events = net.events(0);
    for caller in [silent, slow] {
        let gone = CoordinatorEvent::Left { conn: net.conn(caller), fault: Fault::Silent };
        assert!(events.contains(&gone) && net.is_closed(caller));
    }
    assert!(!net.is_closed(worker));
    net.pass(Duration::from_secs(1000));
    assert!(!net.is_closed(worker) && net.coordinators[0].machine.poll_timeout().is_none());
}

#[test]
fn strangers_that_only_connect_keep_no_worker_out() {
    let mut net = with_coordinator(|config| config.max_connections = 3);
    let first = net.call(C);
    net.tell(first, &Message::Hello(hello()));
    let second = net.call(C);
    let third = net.call(C);
    let fourth = net.call(C);
    assert_eq!(left(&mut net, second), Some(Fault::Surplus));
    for (caller, port) in [(third, 10), (fourth, 11)] {
        net.tell(caller, &Message::Hello(Hello { listen_port: port, layer_start: port, ..hello() }));
    }
    assert_eq!(workers(&net).len(), 3);
    // Workers are not sent away for others.
    assert_eq!(net.try_call(C), None);
    net.hang_up(first);
    assert!(net.try_call(C).is_some());
}

#[test]
fn a_worker_that_speaks_again_is_closed() {
    for (bytes, fault) in [
        (encoded(&Message::Hello(hello())), Fault::Unexpected(FrameType::HELLO)),
        (vector!("result_ack"), Fault::Unexpected(FrameType::RESULT)),
        (encoded(&Message::Error("done".into())), Fault::Remote("done".into())),
        (b"xxxxxxxxxxxx".into(), Fault::Frame(WireError::Magic(0x7878_7878))),
    ] {
        let mut net = with_coordinator(|_| {});
        let caller = net.call(C);
        net.tell(caller, &Message::Hello(hello()));
        assert_eq!(workers(&net).len(), 1);
        // Control connections have no requests, so nothing as long as a result is kept.
        let fault = match fault {
            Fault::Unexpected(FrameType::RESULT) => None,
            other => Some(other),
        };
        assert!(net.say(caller, &bytes).is_empty());
        let found = left(&mut net, caller);
        assert!(found.is_some() && (fault.is_none() || found == fault), "{found:?}");
        assert!(workers(&net).is_empty());
    }
    let mut net = with_coordinator(|_| {});
    let caller = net.call(C);
    net.tell(caller, &Message::Hello(hello()));
    let heard = net.say(caller, &whole(FrameType(99), b"x"));
    assert_eq!(messages(&heard), [Message::Error("unexpected frame 99".into())]);
    assert_eq!(left(&mut net, caller), Some(Fault::Unexpected(FrameType(99))));
}

#[test]
fn a_worker_replaces_the_one_that_was_in_its_place() {
    let mut net = with_coordinator(|config| config.host = None);
    let join = |net: &mut Net, host: Option<&str>, hello: Hello| {
        let caller = net.call(C);
        if let Some(host) = host {
            let conn = net.conn(caller);
            assert!(net.coordinators[0].machine.set_host(net.now, conn, host));
        }
        net.tell(caller, &Message::Hello(hello));
        caller
    };
    let a = join(&mut net, Some("h"), hello());
    let b = join(&mut net, None, hello());
    let other = join(&mut net, Some("g"), hello());
    let before = net.coordinators[0].machine.registry().generation();
    let c = join(&mut net, Some("h"), Hello { listen_port: 10, ..hello() });
    assert_eq!(left(&mut net, a), Some(Fault::Replaced));
    assert!(net.coordinators[0].machine.registry().generation() > before);
    // Where a worker is may be said later, too.
    let conn = net.conn(b);
    assert!(net.coordinators[0].machine.set_host(net.now, conn, "h"));
    net.run();
    assert_eq!(left(&mut net, c), Some(Fault::Replaced));
    assert_eq!(workers(&net).len(), 2);
    assert!(!net.is_closed(b) && !net.is_closed(other));
    // What is no host is none.
    for host in ["", "a\0b", &"a".repeat(1025)] {
        assert!(!net.coordinators[0].machine.set_host(net.now, conn, host));
    }
    let gone = net.conn(a);
    assert!(!net.coordinators[0].machine.set_host(net.now, gone, "h"));
}

#[test]
fn a_route_is_there_as_soon_as_all_layers_are() {
    let mut net = with_coordinator(|_| {});
    let missing = |net: &mut Net| net.coordinators[0].machine.path().unwrap_err().to_string();
    assert_eq!(missing(&mut net), "no worker begins with layer 0");
    let submit = |net: &mut Net| net.coordinators[0].machine.submit(net.now, Request::new(7, vec![1]));
    assert!(matches!(submit(&mut net), Err(SubmitError::Route(_))));
    net.worker(worker_config((0, 20), 1));
    assert_eq!(missing(&mut net), "no worker begins with layer 21");
    let mut headless = worker_config((21, 42), 2);
    headless.has_output = false;
    net.worker(headless);
    assert_eq!(missing(&mut net), "no worker with the last layer has the output head");
    net.worker(worker_config((21, 42), 3));
    let path = net.coordinators[0].machine.path().unwrap();
    let ports: Vec<u32> = path.hops().iter().map(|hop| hop.hello.listen_port).collect();
    assert_eq!(ports, [1, 3]);
    assert_eq!(net.coordinators[0].machine.path(), Ok(path));
    net.kill(Who::Worker(0));
    assert_eq!(missing(&mut net), "no worker begins with layer 0");
}

#[test]
fn a_worker_comes_back_a_second_after_it_lost_its_coordinator() {
    let mut net = Net::new();
    net.worker(worker_config((0, 42), 1));
    assert!(!net.workers[0].machine.is_joined());
    net.listen("c", Who::Hand);
    net.run();
    let caller = net.called("c");
    assert_eq!(net.worker_events(0), [WorkerEvent::Joined]);
    net.hang_up(caller);
    assert_eq!(net.worker_events(0), [WorkerEvent::Lost { fault: Fault::Ended }]);
    net.pass(Duration::from_millis(999));
    assert_eq!(net.calls("c"), 1);
    net.pass(Duration::from_millis(1));
    assert_eq!(net.calls("c"), 2);
    // One that is not wanted is told so, and tries again all the same.
    let caller = net.called("c");
    net.heard(caller);
    net.tell(caller, &Message::Error("model id mismatch".into()));
    let lost = WorkerEvent::Lost { fault: Fault::Remote("model id mismatch".into()) };
    assert_eq!(net.worker_events(0), [WorkerEvent::Joined, lost]);
    net.pass(Duration::from_secs(1));
    assert_eq!((net.calls("c"), net.worker_events(0)), (3, vec![WorkerEvent::Joined]));
}

#[test]
fn a_driver_that_hears_of_each_attempt_makes_200_of_them_25_ms_apart_and_then_waits_for_a_second() {
    let now = Instant::ZERO;
    let mut worker = Worker::new(now, worker_config((21, 42), 9));
    let asked = |worker: &mut Worker| match (worker.poll_action(), worker.poll_action()) {
        (Some(Action::Connect { conn, delay, .. }), None) => (conn, delay),
        other => panic!("{other:?}"),
    };
    let (mut conn, mut delay) = asked(&mut worker);
    assert_eq!(delay, Duration::ZERO);
    for attempt in 1..=400 {
        worker.attempt_failed(now, conn, Trouble::Refused);
        // Nothing is heard of one that is over.
        worker.attempt_failed(now, conn, Trouble::Other);
        (conn, delay) = asked(&mut worker);
        assert_eq!(delay, Duration::from_millis(if attempt % 200 == 0 { 1000 } else { 25 }), "{attempt}");
    }
    worker.attempt_failed(now, conn, Trouble::Other);
    (conn, delay) = asked(&mut worker);
    assert_eq!(delay, Duration::from_secs(1));
    worker.handle_connected(now, conn);
    worker.attempt_failed(now, conn, Trouble::Refused);
    assert!(worker.is_joined(), "it did not fail");
}

#[test]
fn an_address_that_can_not_be_read_is_tried_again_each_second() {
    let mut net = Net::new();
    net.worker(worker_config((0, 42), 1));
    let conns = |net: &Net| net.waiting(Who::Worker(0));
    let [(conn, due)] = conns(&net)[..] else { panic!("it connects") };
    assert_eq!(due, net.now);
    net.workers[0].machine.handle_eof(net.now, conn);
    net.drop_attempt(conn);
    net.run();
    let [(again, due)] = conns(&net)[..] else { panic!("it connects") };
    assert!(again != conn && due == net.now + Duration::from_secs(1));
    assert!(net.worker_events(0).is_empty());
}

#[test]
fn without_a_coordinator_there_are_no_sessions() {
    let mut net = Net::new();
    net.listen("c", Who::Hand);
    net.worker(worker_config((0, 42), 1));
    let control = net.called("c");
    let data = net.call(Who::Worker(0));
    net.workers[0].events.clear();
    net.tell(data, &crate::layers_peers::said(crate::layers_peers::all(7, 1, &[], &[1])));
    let task = net.task(0);
    net.tell(data, &crate::layers_peers::said(crate::layers_peers::all(8, 2, &[], &[1])));
    let other = net.task(0);
    net.compute(0, &other);
    assert_eq!(net.workers[0].machine.sessions(), 2);
    net.hang_up(control);
    assert_eq!(net.workers[0].machine.sessions(), 0);
    // What is being computed is not lost, but its session is.
    net.workers[0].events.clear();
    net.compute(0, &task);
    assert_eq!(messages(&net.heard(data)).len(), 2);
    assert_eq!(net.workers[0].machine.sessions(), 0);
    let heard = net.tell(data, &crate::layers_peers::said(crate::layers_peers::all(7, 3, &[1], &[2])));
    let [Message::Result(result)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(result.error().unwrap(), "worker KV prefix hash mismatch");
}

#[test]
fn whoever_shuts_down_closes_everything_and_comes_no_more() {
    let mut net = with_coordinator(|_| {});
    net.worker(worker_config((0, 42), 1));
    let data = net.call(Who::Worker(0));
    net.workers[0].machine.shut_down(net.now);
    net.run();
    assert!(net.workers[0].machine.is_finished() && net.is_closed(data));
    assert!(net.waiting(Who::Worker(0)).is_empty() && workers(&net).is_empty());
    assert_eq!(net.try_call(Who::Worker(0)), None);
    let stranger = net.call(C);
    net.coordinators[0].machine.shut_down(net.now);
    net.run();
    assert!(net.coordinators[0].machine.is_finished() && net.is_closed(stranger));
    assert_eq!(net.try_call(C), None);
    let request = Request::new(7, vec![1]);
    assert_eq!(net.coordinators[0].machine.submit(net.now, request), Err(SubmitError::ShutDown));
}
