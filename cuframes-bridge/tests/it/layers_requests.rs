//! A coordinator and its requests: how many, what an answer has to be, and what fails with what.

use std::time::Duration;

use cuframes_bridge::layers::{
    CoordinatorConfig, CoordinatorEvent, Failure, Fault, Recovery, Reply, Request, Step, SubmitError,
};
use cuframes_bridge::wire::{FrameType, Message, ResultKind, Width, WorkFlags, WorkResult, token_hash};
use cuframes_core::streams::{ConnId, Machine as _};

use crate::bytes::whole;
use crate::layers_peers::{coordinator_config, encoded, messages, worker_config};
use crate::layers_world::{Caller, Net, Who};

const C: Who = Who::Coordinator(0);

/// Layers and port of a worker.
type Place = ((u32, u32), u16);

/// A coordinator, and workers that are written by hand, with these layers and ports; their control connections.
fn by_hand(change: impl FnOnce(&mut CoordinatorConfig), workers: &[Place]) -> (Net, Vec<Caller>) {
    let mut net = Net::new();
    let mut config = coordinator_config();
    change(&mut config);
    net.coordinator(config);
    let controls = workers.iter().map(|(layers, port)| {
        net.listen(&format!("tcp://h:{port}"), Who::Hand);
        let control = net.call(C);
        net.tell(control, &Message::Hello(worker_config(*layers, *port).hello()));
        control
    });
    let controls = controls.collect();
    net.events(0);
    (net, controls)
}

/// With one worker that has all layers.
fn one(change: impl FnOnce(&mut CoordinatorConfig)) -> (Net, Caller) {
    let (net, controls) = by_hand(change, &[((0, 42), 5)]);
    (net, controls[0])
}

/// A request of one token that follows on the one before.
fn request(number: u32) -> Request {
    let mut request = Request::new(7, vec![number]);
    let before: Vec<u32> = (1..number).collect();
    (request.prefix_hash, request.pos0, request.reset) = (token_hash(&before), number - 1, number == 1);
    request
}

/// The right answer to it.
fn logits(number: u32) -> WorkResult {
    WorkResult {
        request: number.into(),
        result_hash: token_hash(&(1..=number).collect::<Vec<_>>()),
        kind: ResultKind::LOGITS,
        payload_bits: 32,
        payload: vec![1, 2, 3, 4],
        ..WorkResult::default()
    }
}

fn said(result: WorkResult) -> Message {
    Message::Result(Box::new(result))
}

fn try_submit(net: &mut Net, request: Request) -> Result<u64, SubmitError> {
    net.coordinators[0].machine.submit(net.now, request)
}

fn failed(request: u64, fault: Fault) -> CoordinatorEvent {
    CoordinatorEvent::Failed { request, failure: Failure::Transport(fault) }
}

fn left(conn: ConnId, fault: Fault) -> CoordinatorEvent {
    CoordinatorEvent::Left { conn, fault }
}

#[test]
fn requests_go_to_the_data_port_with_numbers_from_one() {
    let (mut net, control) = one(|_| {});
    let mut wanted = Request::new(7, vec![1]);
    wanted.width = Width::BF16;
    assert_eq!(net.submit(wanted), 1);
    let data = net.called("tcp://h:5");
    let [Message::Work(work)] = &messages(&net.heard(data))[..] else { panic!("it is a request") };
    assert_eq!((work.request, work.session, work.model_id, work.activation_bits), (1, 7, 1, 16));
    assert_eq!((work.layer_start, work.layer_end), (0, 42));
    assert_eq!(work.flags, WorkFlags::LOGITS.union(WorkFlags::RESET));
    assert_eq!(
        (&work.route.hops[0].host[..], work.route.hops[0].port, work.route.hops[0].flags),
        ("h", 5, 1)
    );
    assert_eq!(work.check(), Ok(()));
    net.tell(data, &said(logits(1)));
    let events = net.events(0);
    let [CoordinatorEvent::Answer(answer)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        (answer.request, answer.result_hash, &answer.payload[..]),
        (1, token_hash(&[1]), &[1, 2, 3, 4][..])
    );
    // The next one takes the same connection.
    assert_eq!(net.submit(request(2)), 2);
    assert_eq!((net.calls("tcp://h:5"), messages(&net.heard(data)).len()), (1, 1));
    assert!(net.heard(control).is_empty());
}

#[test]
fn so_many_requests_are_under_way() {
    let windows: [(Option<usize>, &[Place], usize); 6] = [
        (None, &[((0, 42), 5)], 3),
        (None, &[((0, 20), 5), ((21, 42), 6)], 4),
        (
            None,
            &[
                ((0, 5), 5),
                ((6, 10), 6),
                ((11, 15), 7),
                ((16, 20), 8),
                ((21, 25), 9),
                ((26, 30), 10),
                ((31, 42), 11),
            ],
            8,
        ),
        (Some(1), &[((0, 42), 5)], 1),
        (Some(20), &[((0, 42), 5)], 20),
        (Some(1000), &[((0, 42), 5)], 64),
    ];
    for (window, workers, expected) in windows {
        let (mut net, _) = by_hand(|config| config.window = window, workers);
        let expected = u32::try_from(expected).unwrap();
        for number in 1..=expected {
            assert_eq!(try_submit(&mut net, request(number)), Ok(number.into()));
        }
        assert_eq!(try_submit(&mut net, request(expected + 1)), Err(SubmitError::Full));
        net.run();
        let data = net.called("tcp://h:5");
        net.tell(data, &said(logits(1)));
        assert_eq!(try_submit(&mut net, request(expected + 1)), Ok(u64::from(expected) + 1));
        assert_eq!(net.coordinators[0].machine.pending(), usize::try_from(expected).unwrap());
    }
}

#[test]
fn a_request_that_can_not_be_is_not_sent() {
    let (mut net, _) = one(|_| {});
    let mut refused = |change: fn(&mut Request)| {
        let mut request = request(1);
        change(&mut request);
        let error = try_submit(&mut net, request).unwrap_err();
        assert!(!error.to_string().is_empty());
        error
    };
    assert_eq!(refused(|request| request.tokens.clear()), SubmitError::Tokens);
    assert_eq!(refused(|request| request.pos0 = 100), SubmitError::Tokens);
    assert_eq!(refused(|request| request.pos0 = u32::MAX), SubmitError::Tokens);
    assert_eq!(refused(|request| request.activations = vec![0; 4]), SubmitError::Activations);
    assert_eq!(net.coordinators[0].machine.pending(), 0);

    // With layers of its own, and the output head.
    let change = |config: &mut CoordinatorConfig| {
        (config.local_layers, config.has_output, config.limits.work_bytes) = (21, true, 1000);
    };
    let (mut net, _) = by_hand(change, &[((21, 42), 5)]);
    let mut hidden = request(1);
    hidden.wants = Reply::Hidden;
    assert_eq!(try_submit(&mut net, hidden.clone()), Err(SubmitError::Activations));
    for (bytes, result) in [(7, Err(SubmitError::Activations)), (8, Ok(1)), (1200, Err(SubmitError::TooLong))]
    {
        hidden.activations = vec![1; bytes];
        assert_eq!(try_submit(&mut net, hidden.clone()), result, "{bytes}");
    }
    net.run();
    let data = net.called("tcp://h:5");
    let [Message::Work(work)] = &messages(&net.heard(data))[..] else { panic!("it is a request") };
    assert_eq!((work.layer_start, work.flags.0, work.check()), (21, 1 | 4, Ok(())));

    let mut net = Net::new();
    let mut config = coordinator_config();
    config.has_output = true;
    net.coordinator(config);
    let mut headless = worker_config((0, 42), 5);
    headless.has_output = false;
    net.worker(headless);
    assert_eq!(try_submit(&mut net, request(1)), Err(SubmitError::NoOutput));
}

#[test]
fn a_worker_that_says_that_it_failed_keeps_its_connection() {
    let (mut net, control) = one(|_| {});
    net.submit(request(1));
    net.submit(request(2));
    let data = net.called("tcp://h:5");
    net.tell(data, &said(WorkResult::failed(1, "out of memory")));
    net.tell(data, &said(logits(2)));
    let events = net.events(0);
    let failure = Failure::Remote("out of memory".into());
    assert_eq!(failure.to_string(), "a worker failed: out of memory");
    assert_eq!(events[0], CoordinatorEvent::Failed { request: 1, failure: failure.clone() });
    assert!(matches!(&events[1..], [CoordinatorEvent::Answer(answer)] if answer.request == 2));
    assert!(!net.is_closed(data) && !net.is_closed(control));

    // Once it is tried again, on the same route.
    let mut recovery = Recovery::default();
    assert_eq!(recovery.failed(&failure), Step::Replay);
    assert_eq!(net.submit(Request::new(7, vec![1, 2])), 3);
    let heard = messages(&net.heard(data));
    let Some(Message::Work(work)) = heard.last() else { panic!("{heard:?}") };
    assert!(work.flags.contains(WorkFlags::RESET));
}

#[test]
fn an_answer_that_does_not_fit_its_request_ends_the_way() {
    let ack = WorkResult { kind: ResultKind::ACK, payload_bits: 0, payload: Vec::new(), ..logits(1) };
    for (bytes, fault) in [
        (encoded(&said(logits(2))), Fault::Order { got: 2, expected: Some(1) }),
        (encoded(&said(WorkResult::failed(2, "x"))), Fault::Order { got: 2, expected: Some(1) }),
        (encoded(&said(WorkResult { result_hash: 1, ..logits(1) })), Fault::Hash { request: 1 }),
        (encoded(&said(ack)), Fault::Kind { request: 1, got: ResultKind::ACK }),
        (encoded(&Message::Error("no".into())), Fault::Remote("no".into())),
        (encoded(&Message::Hello(worker_config((0, 42), 5).hello())), Fault::Unexpected(FrameType::HELLO)),
        (whole(FrameType(30), b"x"), Fault::Unexpected(FrameType(30))),
    ] {
        let (mut net, controls) = by_hand(|_| {}, &[((0, 20), 5), ((21, 42), 6), ((0, 42), 7)]);
        net.hang_up(controls[2]);
        net.events(0);
        net.submit(request(1));
        net.submit(request(2));
        let data = net.called("tcp://h:5");
        net.say(data, &bytes);
        let conns = [net.conn(controls[0]), net.conn(controls[1])];
        // Each request fails, and every worker of the way is forgotten.
        assert_eq!(
            net.events(0),
            [
                failed(1, fault.clone()),
                failed(2, fault.clone()),
                left(conns[0], Fault::Forgotten),
                left(conns[1], Fault::Forgotten),
            ]
        );
        assert!(net.is_closed(data) && net.is_closed(controls[0]) && net.is_closed(controls[1]));
        let mut recovery = Recovery::default();
        assert_eq!(recovery.failed(&Failure::Transport(fault)), Step::ReplayElsewhere);
        assert!(matches!(try_submit(&mut net, request(1)), Err(SubmitError::Route(_))));
    }
}

#[test]
fn an_answer_that_nobody_waits_for_ends_the_connection_and_costs_no_worker() {
    let (mut net, control) = one(|_| {});
    net.submit(request(1));
    let data = net.called("tcp://h:5");
    net.tell(data, &said(logits(1)));
    net.events(0);
    net.tell(data, &said(logits(1)));
    assert!(net.is_closed(data) && !net.is_closed(control));
    assert!(net.events(0).is_empty());
    assert_eq!(net.submit(request(2)), 2);
    assert_eq!(net.calls("tcp://h:5"), 2);
}

#[test]
fn a_data_port_that_can_not_be_reached_or_closes_or_is_silent_is_forgotten() {
    let (mut net, control) = one(|_| {});
    net.unlisten("tcp://h:5");
    net.submit(request(1));
    net.pass(Duration::from_millis(4999));
    assert!(net.events(0).is_empty());
    net.pass(Duration::from_millis(1));
    let conn = net.conn(control);
    assert_eq!(net.events(0), [failed(1, Fault::Unreachable), left(conn, Fault::Forgotten)]);

    let (mut net, control) = one(|_| {});
    net.submit(request(1));
    let data = net.called("tcp://h:5");
    net.say(data, &encoded(&said(logits(1)))[..30]);
    net.hang_up(data);
    let (conn, cut) = (net.conn(control), Fault::Frame(cuframes_bridge::wire::WireError::Cut));
    assert_eq!(net.events(0), [failed(1, cut), left(conn, Fault::Forgotten)]);

    let (mut net, control) = one(|config| config.receive_timeout = Some(Duration::from_secs(30)));
    net.submit(request(1));
    let data = net.called("tcp://h:5");
    net.pass(Duration::from_secs(29));
    net.say(data, &encoded(&said(logits(1)))[..30]);
    net.pass(Duration::from_secs(29));
    assert!(net.events(0).is_empty());
    net.say(data, &encoded(&said(logits(1)))[30..]);
    net.pass(Duration::from_secs(100));
    assert_eq!(net.events(0).len(), 1);
    net.submit(request(2));
    net.pass(Duration::from_secs(30));
    let conn = net.conn(control);
    assert_eq!(net.events(0), [failed(2, Fault::Receive), left(conn, Fault::Forgotten)]);
}

#[test]
fn a_worker_that_does_not_read_is_given_up_when_it_has_taken_nothing_for_a_minute() {
    let (mut net, control) = one(|_| {});
    net.width = 50;
    net.submit(request(1));
    let data = net.called("tcp://h:5");
    net.tell(data, &said(logits(1)));
    net.plug(data, true);
    net.submit(request(2));
    net.events(0);
    // As long as it takes a little, it is not stuck.
    net.pass(Duration::from_secs(50));
    net.peek(data, 1);
    net.pass(Duration::from_secs(50));
    assert!(net.events(0).is_empty());
    net.pass(Duration::from_secs(60));
    let conn = net.conn(control);
    assert_eq!(net.events(0), [failed(2, Fault::Send), left(conn, Fault::Forgotten)]);
}

#[test]
fn what_is_under_way_through_a_worker_that_leaves_fails_and_the_others_stay() {
    let (mut net, controls) = by_hand(|_| {}, &[((0, 20), 5), ((21, 42), 6)]);
    net.submit(request(1));
    let data = net.called("tcp://h:5");
    net.hang_up(controls[1]);
    let conn = net.conn(controls[1]);
    assert_eq!(net.events(0), [left(conn, Fault::Ended), failed(1, Fault::Gone)]);
    assert!(net.is_closed(data) && !net.is_closed(controls[0]));
    // The owner may give one up, too.
    let conn = net.conn(controls[0]);
    assert!(net.coordinators[0].machine.forget(net.now, conn));
    assert!(!net.coordinators[0].machine.forget(net.now, conn));
    net.run();
    assert_eq!(net.events(0), [left(conn, Fault::Forgotten)]);
    assert!(net.is_closed(controls[0]));
}

#[test]
fn a_worker_that_moves_is_sent_nothing_more_at_its_old_place() {
    let (mut net, control) = one(|_| {});
    net.submit(request(1));
    let old = net.called("tcp://h:5");
    let conn = net.conn(control);
    assert!(net.coordinators[0].machine.set_host(net.now, conn, "h"));
    net.run();
    assert!(!net.is_closed(old));
    assert!(net.coordinators[0].machine.set_host(net.now, conn, "g"));
    net.run();
    assert!(net.is_closed(old) && !net.is_closed(control));
    assert_eq!(net.events(0), [failed(1, Fault::Gone)]);
    net.listen("tcp://g:5", Who::Hand);
    net.submit(request(1));
    assert_eq!(net.calls("tcp://g:5"), 1);
}

#[test]
fn a_new_worker_changes_the_way_of_later_requests() {
    let (mut net, _) = by_hand(|_| {}, &[((0, 20), 5), ((21, 42), 6)]);
    net.submit(request(1));
    net.listen("tcp://h:7", Who::Hand);
    let longer = net.call(C);
    net.tell(longer, &Message::Hello(worker_config((0, 42), 7).hello()));
    net.submit(Request::new(8, vec![1]));
    assert_eq!((net.calls("tcp://h:5"), net.calls("tcp://h:7")), (1, 1));
    // Each way is answered by itself.
    let (old, new) = (net.called("tcp://h:5"), net.called("tcp://h:7"));
    net.tell(new, &said(WorkResult { request: 2, ..logits(1) }));
    net.tell(old, &said(logits(1)));
    let answers = net.events(0).into_iter().filter_map(|event| match event {
        CoordinatorEvent::Answer(answer) => Some(answer.request),
        _ => None,
    });
    assert_eq!(answers.collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn what_is_under_way_when_it_shuts_down_fails() {
    let (mut net, control) = one(|_| {});
    net.submit(request(1));
    net.coordinators[0].machine.shut_down(net.now);
    net.run();
    let conn = net.conn(control);
    let mut events = net.events(0);
    events.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(events, [failed(1, Fault::ShutDown), left(conn, Fault::ShutDown)]);
    assert!(net.coordinators[0].machine.poll_timeout().is_none());
}

#[test]
fn what_waits_for_a_connection_is_late_when_that_is_and_not_before() {
    let (mut net, _) = one(|config| {
        (config.connect_timeout, config.send_timeout) = (Duration::from_secs(100), Duration::from_secs(10));
    });
    net.unlisten("tcp://h:5");
    let request = net.submit(request(1));
    for _ in 0..9 {
        net.pass(Duration::from_secs(10));
        assert_eq!(net.events(0), []);
    }
    net.pass(Duration::from_secs(10));
    let failure = Failure::Transport(Fault::Unreachable);
    assert_eq!(net.events(0).first(), Some(&CoordinatorEvent::Failed { request, failure }));
}
