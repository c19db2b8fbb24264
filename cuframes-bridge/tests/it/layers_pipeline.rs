//! Two workers and more: requests go on, results come back, and what happens where the next worker fails.

use std::time::Duration;

use cuframes_bridge::layers::{
    Answer, CoordinatorEvent, Failure, Fault, Outcome, Reply, Request, Wants, WorkerEvent,
};
use cuframes_bridge::wire::{
    Hop, Message, ResultKind, Telemetry, Width, Work, WorkFlags, WorkResult, extend_hash, token_hash,
};
use cuframes_core::streams::Machine as _;

use crate::bytes::whole;
use crate::layers_peers::{
    alone, computed, coordinator_config, encoded, messages, said, work, worker_config,
};
use crate::layers_world::{Caller, Net, Who};

/// A coordinator and two workers.
fn two() -> Net {
    let mut net = Net::new();
    net.coordinator(coordinator_config());
    net.worker(worker_config((0, 20), 1));
    net.worker(worker_config((21, 42), 2));
    net.events(0);
    net.workers.iter_mut().for_each(|node| node.events.clear());
    net
}

/// The answer that is all that has happened to the coordinator.
fn answer(net: &mut Net) -> Answer {
    match <[CoordinatorEvent; 1]>::try_from(net.events(0)) {
        Ok([CoordinatorEvent::Answer(answer)]) => *answer,
        other => panic!("{other:?}"),
    }
}

/// The task that a worker has got, whoever has connected to it.
fn task(net: &mut Net, worker: usize) -> cuframes_bridge::layers::Task {
    net.workers[worker].events.retain(|event| !matches!(event, WorkerEvent::Opened { .. }));
    net.task(worker)
}

/// A worker for the first layers, a connection to it, and a next worker that is written by hand.
fn first() -> (Net, Caller) {
    let (mut net, caller) = alone(|config| *config = worker_config((0, 20), 1));
    net.listen("tcp://n:5", Who::Hand);
    (net, caller)
}

/// A request for it that goes on to the next one.
fn through(session: u64, request: u64, tokens: &[u32]) -> Work {
    let mut work = work((0, 20), session, request, &[], tokens);
    let next = Hop { host: "n".into(), port: 5, layer_start: 21, layer_end: 42, flags: Hop::LOGITS };
    work.route.hops.push(next);
    work
}

/// The same, and the worker has computed it.
fn forwarded(net: &mut Net, caller: Caller, session: u64, request: u64) {
    assert!(net.tell(caller, &said(through(session, request, &[1, 2]))).is_empty());
    let task = net.task(0);
    net.compute(0, &task);
}

/// What the next worker answers.
fn logits(request: u64, tokens: &[u32]) -> WorkResult {
    WorkResult {
        request,
        result_hash: token_hash(tokens),
        kind: ResultKind::LOGITS,
        payload_bits: 32,
        payload: vec![9; 4],
        ..WorkResult::default()
    }
}

fn result(result: WorkResult) -> Message {
    Message::Result(Box::new(result))
}

/// Numbers and errors of all that a requester heard.
fn heard(net: &mut Net, caller: Caller) -> Vec<(u64, Option<String>)> {
    let all = messages(&net.heard(caller)).into_iter().map(|message| match message {
        Message::Result(result) => (result.request, result.error()),
        other => panic!("{other:?}"),
    });
    all.collect()
}

#[test]
fn a_request_passes_all_workers_and_the_result_says_where_the_time_went() {
    let mut net = two();
    assert_eq!(net.submit(Request::new(7, vec![1, 300])), 1);
    let first = task(&mut net, 0);
    assert_eq!((first.wants, first.is_new), (Wants::Forward { bytes: 16 }, true));
    assert!(first.activations.is_empty());
    net.now = net.now + Duration::from_micros(100);
    net.compute(0, &first);
    let second = task(&mut net, 1);
    let Outcome::Hidden(sent) = computed(&first) else { panic!("it is a hidden state") };
    assert_eq!((second.wants, &second.activations, second.is_new), (Wants::Logits, &sent, true));
    assert_eq!((&second.tokens[..], second.pos0, second.session), (&[1, 300][..], 0, 7));
    net.now = net.now + Duration::from_micros(2000);
    net.compute(1, &second);
    let answer = answer(&mut net);
    assert_eq!(
        (answer.request, answer.result_hash, answer.kind),
        (1, token_hash(&[1, 300]), ResultKind::LOGITS)
    );
    let Outcome::Logits(payload) = computed(&second) else { panic!("they are logits") };
    assert_eq!((answer.payload_bits, answer.payload), (32, payload));
    let record = Telemetry { n_tokens: 2, ..Telemetry::default() };
    let last = Telemetry {
        layer_start: 21,
        layer_end: 42,
        route_index: 1,
        eval_usec: 2000,
        input_bytes: 24,
        output_bytes: 8,
        ..record
    };
    let first = Telemetry {
        layer_start: 0,
        layer_end: 20,
        eval_usec: 100,
        downstream_wait_usec: 2000,
        input_bytes: 8,
        output_bytes: 16,
        ..record
    };
    assert_eq!(answer.telemetry, [last, first]);
}

#[test]
fn the_time_to_send_on_is_told_apart_from_the_time_to_wait() {
    let (mut net, caller) = first();
    net.width = 100;
    let next = {
        // It reads nothing at first.
        forwarded(&mut net, caller, 1, 1);
        let next = net.called("tcp://n:5");
        net.heard(next);
        net.plug(next, true);
        next
    };
    forwarded(&mut net, caller, 2, 2);
    net.now = net.now + Duration::from_micros(300);
    net.look();
    net.plug(next, false);
    net.heard(next);
    for request in [1, 2] {
        net.now = net.now + Duration::from_micros(50);
        net.tell(next, &result(logits(request, &[1, 2])));
    }
    let all = messages(&net.heard(caller));
    let times = all.into_iter().map(|message| match message {
        Message::Result(result) => {
            let last = result.telemetry.last().unwrap();
            (last.forward_send_usec, last.downstream_wait_usec)
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(times.collect::<Vec<_>>(), [(0, 350), (300, 100)]);
}

#[test]
fn the_next_worker_gets_the_same_request_for_its_own_layers() {
    let (mut net, caller) = first();
    let mut request = through(7, 5, &[1, 2]);
    request.activation_bits = 16;
    request.flags = WorkFlags::RESET;
    request.route.hops[1].layer_end = 30;
    request.route.hops[1].flags = 0;
    let third = Hop { host: "::1".into(), port: 6, layer_start: 31, layer_end: 42, flags: Hop::LOGITS };
    request.route.hops.push(third);
    net.tell(caller, &said(request.clone()));
    let task = net.task(0);
    assert_eq!(task.wants, Wants::Forward { bytes: 8 });
    net.compute(0, &task);
    let next = net.called("tcp://n:5");
    let [Message::Work(sent)] = &messages(&net.heard(next))[..] else { panic!("it is a request") };
    let Outcome::Hidden(activations) = computed(&task) else { panic!("it is a hidden state") };
    let mut expected = request;
    (expected.layer_start, expected.layer_end, expected.route.index) = (21, 30, 1);
    expected.flags = WorkFlags(WorkFlags::INPUT.0 | WorkFlags::RESET.0);
    expected.activations = activations;
    assert_eq!(**sent, expected);
    assert_eq!(sent.check(), Ok(()));

    // The last one returns the logits.
    let (mut net, caller) = alone(|config| *config = worker_config((21, 30), 1));
    net.listen("tcp://[::1]:6", Who::Hand);
    net.tell(caller, &Message::Work(sent.clone()));
    let task = net.task(0);
    net.compute(0, &task);
    let next = net.called("tcp://[::1]:6");
    let [Message::Work(last)] = &messages(&net.heard(next))[..] else { panic!("it is a request") };
    assert_eq!((last.route.index, last.flags.0), (2, 1 | 2 | 4));
    assert_eq!(last.check(), Ok(()));
}

#[test]
fn acknowledgements_and_hidden_states_come_through_all_workers_too() {
    let mut net = two();
    let mut hash = token_hash(&[]);
    let wanted = [
        (Reply::Ack, ResultKind::ACK),
        (Reply::Hidden, ResultKind::HIDDEN),
        (Reply::Logits, ResultKind::LOGITS),
    ];
    for (number, (wants, kind)) in (1..).zip(wanted) {
        let mut request = Request::new(7, vec![3, 4]);
        (request.prefix_hash, request.pos0, request.reset) = (hash, 2 * (number - 1), number == 1);
        (request.wants, request.width) = (wants, Width::BF16);
        hash = request.result_hash();
        net.submit(request);
        for worker in [0, 1] {
            let task = task(&mut net, worker);
            assert_eq!(task.is_new, number == 1);
            net.compute(worker, &task);
        }
        let answer = answer(&mut net);
        assert_eq!((answer.kind, answer.result_hash, answer.telemetry.len()), (kind, hash, 2));
        let bits = [0, 16, 32][usize::try_from(number - 1).unwrap()];
        assert_eq!((answer.payload_bits, answer.payload.is_empty()), (bits, wants == Reply::Ack));
    }
    assert_eq!(hash, extend_hash(token_hash(&[3, 4, 3, 4]), &[3, 4]));
}

#[test]
fn the_first_worker_computes_while_the_next_one_does() {
    let mut net = two();
    let mut hash = token_hash(&[]);
    // Two more than there are workers.
    for number in 0..4 {
        let mut request = Request::new(7, vec![number]);
        (request.prefix_hash, request.reset, request.wants) = (hash, number == 0, Reply::Ack);
        hash = request.result_hash();
        assert_eq!(net.submit(request), u64::from(number) + 1);
    }
    for _ in 0..4 {
        let task = task(&mut net, 0);
        net.compute(0, &task);
    }
    let mut answers = Vec::new();
    for _ in 0..4 {
        let task = task(&mut net, 1);
        net.compute(1, &task);
        answers.push(answer(&mut net).request);
    }
    assert_eq!(answers, [1, 2, 3, 4]);
}

#[test]
fn a_next_worker_has_at_most_four_requests() {
    let (mut net, caller) = first();
    for request in 1..=6 {
        forwarded(&mut net, caller, request, request);
    }
    let next = net.called("tcp://n:5");
    assert_eq!(messages(&net.heard(next)).len(), 4);
    net.tell(next, &result(logits(1, &[1, 2])));
    assert_eq!(heard(&mut net, caller), [(1, None)]);
    // Another one had followed at once.
    net.tell(next, &result(logits(2, &[1, 2])));
    let conn = net.conn(caller);
    assert!(net.workers[0].machine.is_hungry(conn));
    for request in 3..=6 {
        net.tell(next, &result(logits(request, &[1, 2])));
    }
    assert_eq!(heard(&mut net, caller), [(2, None), (3, None), (4, None), (5, None), (6, None)]);
    assert_eq!(net.calls("tcp://n:5"), 1);
}

#[test]
fn results_of_different_ways_come_in_the_order_of_the_requests() {
    let (mut net, caller) = first();
    net.listen("tcp://n:6", Who::Hand);
    forwarded(&mut net, caller, 1, 1);
    let mut other = through(2, 2, &[1, 2]);
    other.route.hops[1].port = 6;
    net.tell(caller, &said(other));
    let task = net.task(0);
    net.compute(0, &task);
    // And one that ends here.
    net.tell(caller, &said(work((0, 20), 3, 3, &[], &[1, 2])));
    let task = net.task(0);
    net.compute(0, &task);
    let (five, six) = (net.called("tcp://n:5"), net.called("tcp://n:6"));
    net.tell(six, &result(logits(2, &[1, 2])));
    assert!(heard(&mut net, caller).is_empty());
    net.tell(five, &result(logits(1, &[1, 2])));
    assert_eq!(heard(&mut net, caller), [(1, None), (2, None), (3, None)]);
}

#[test]
fn an_error_of_the_next_worker_is_passed_on_and_the_connections_go_on() {
    let (mut net, caller) = first();
    forwarded(&mut net, caller, 1, 1);
    forwarded(&mut net, caller, 2, 2);
    let next = net.called("tcp://n:5");
    net.tell(next, &result(WorkResult::failed(1, "worker KV prefix hash mismatch")));
    net.tell(next, &result(logits(2, &[1, 2])));
    let all = heard(&mut net, caller);
    assert_eq!(all, [(1, Some("worker KV prefix hash mismatch".into())), (2, None)]);
    assert!(!net.is_closed(caller) && !net.is_closed(next));
}

#[test]
fn a_next_worker_that_fails_costs_the_oldest_request_and_both_connections() {
    let bytes = |message| encoded(&message);
    let wrong_hash = || WorkResult { result_hash: 5, ..logits(1, &[1, 2]) };
    for (say, text) in [
        (Some(bytes(Message::Error("no".into()))), "it gave up: no"),
        (Some(bytes(result(logits(2, &[1, 2])))), "it answered request 2, not 1"),
        (Some(bytes(result(wrong_hash()))), "it answered request 1 with another hash"),
        (Some(bytes(said(through(1, 1, &[1])))), "it sent a frame WORK, which has no place there"),
        (
            Some(whole(cuframes_bridge::wire::FrameType(50), b"x")),
            "it sent a frame 50, which has no place there",
        ),
        (Some(vec![0; 12]), "it is no frame: it starts with 0x00000000"),
        (
            Some(bytes(result(WorkResult { kind: ResultKind(3), ..logits(1, &[1, 2]) }))),
            "RESULT result_kind: 0x3 is not allowed",
        ),
        (None, "it closed the connection"),
    ] {
        let (mut net, caller) = first();
        forwarded(&mut net, caller, 1, 1);
        forwarded(&mut net, caller, 2, 2);
        net.tell(caller, &said(through(3, 3, &[1])));
        let third = net.task(0);
        let next = net.called("tcp://n:5");
        match say {
            Some(bytes) => _ = net.say(next, &bytes),
            None => net.hang_up(next),
        }
        let text = format!("the next worker failed: {text}");
        assert_eq!(heard(&mut net, caller), [(1, Some(text.clone()))]);
        assert!(net.is_closed(caller) && net.is_closed(next), "{text}");
        let events = net.worker_events(0);
        assert_eq!(events[0], WorkerEvent::Abandoned { task: third.id });
        assert!(matches!(&events[1..], [WorkerEvent::Closed { fault: Fault::Next(_), .. }]), "{events:?}");
        // Whoever is not done yet may say so, to nobody.
        net.compute(0, &third);
    }
}

#[test]
fn a_next_worker_that_can_not_be_reached_or_does_not_answer_is_given_up() {
    let (mut net, caller) = first();
    net.unlisten("tcp://n:5");
    forwarded(&mut net, caller, 1, 1);
    net.pass(Duration::from_millis(4999));
    assert!(!net.is_closed(caller));
    net.pass(Duration::from_millis(1));
    let text = "the next worker failed: it can't be reached";
    assert_eq!(heard(&mut net, caller), [(1, Some(text.into()))]);
    assert!(net.is_closed(caller) && net.waiting(Who::Worker(0)).iter().all(|(_, due)| *due < net.now));

    let (mut net, caller) = alone(|config| {
        *config = worker_config((0, 20), 1);
        config.receive_timeout = Some(Duration::from_secs(30));
    });
    net.listen("tcp://n:5", Who::Hand);
    forwarded(&mut net, caller, 1, 1);
    let next = net.called("tcp://n:5");
    net.pass(Duration::from_secs(29));
    net.say(next, &encoded(&result(logits(1, &[1, 2])))[..20]);
    net.pass(Duration::from_secs(29));
    assert!(!net.is_closed(caller));
    net.pass(Duration::from_secs(1));
    assert_eq!(heard(&mut net, caller), [(1, Some("the next worker failed: it does not answer".into()))]);
}

#[test]
fn a_next_worker_that_has_nothing_to_do_may_go_and_is_called_again() {
    let (mut net, caller) = first();
    forwarded(&mut net, caller, 1, 1);
    let next = net.called("tcp://n:5");
    net.tell(next, &result(logits(1, &[1, 2])));
    net.hang_up(next);
    assert!(!net.is_closed(caller));
    assert_eq!(heard(&mut net, caller), [(1, None)]);
    forwarded(&mut net, caller, 2, 2);
    assert_eq!(net.calls("tcp://n:5"), 2);
    let next = net.called("tcp://n:5");
    net.tell(next, &result(logits(2, &[1, 2])));
    assert_eq!(heard(&mut net, caller), [(2, None)]);
    // Whoever asked takes its next workers with it.
    net.hang_up(caller);
    assert!(net.is_closed(next));
}

#[test]
fn a_connection_has_so_many_next_workers_and_one_that_is_idle_makes_room() {
    let (mut net, caller) = alone(|config| {
        *config = worker_config((0, 20), 1);
        config.max_next = 2;
    });
    let via = |net: &mut Net, request: u64, port: u32| {
        net.listen(&format!("tcp://n:{port}"), Who::Hand);
        let mut work = through(request, request, &[1, 2]);
        work.route.hops[1].port = port;
        net.tell(caller, &said(work));
        let task = net.task(0);
        net.compute(0, &task);
    };
    via(&mut net, 1, 11);
    via(&mut net, 2, 12);
    via(&mut net, 3, 13);
    assert_eq!(net.calls("tcp://n:13"), 0);
    let (one, two) = (net.called("tcp://n:11"), net.called("tcp://n:12"));
    net.tell(two, &result(logits(2, &[1, 2])));
    assert_eq!(net.calls("tcp://n:13"), 1);
    assert!(net.is_closed(two) && !net.is_closed(one));
    net.tell(one, &result(logits(1, &[1, 2])));
    assert_eq!(heard(&mut net, caller), [(1, None), (2, None)]);
}

#[test]
fn where_the_last_worker_dies_the_coordinator_forgets_the_way_and_finds_another() {
    let mut net = two();
    net.worker(worker_config((21, 42), 3));
    net.submit(Request::new(7, vec![1]));
    let first = task(&mut net, 0);
    net.compute(0, &first);
    let dead = [1, 2]
        .into_iter()
        .find(|worker| net.workers[*worker].events.iter().any(|event| matches!(event, WorkerEvent::Work(_))));
    net.kill(Who::Worker(dead.unwrap()));
    let failed = |event: &CoordinatorEvent| matches!(event, CoordinatorEvent::Failed { request: 1, .. });
    let events = net.events(0);
    assert_eq!(events.iter().filter(|event| failed(event)).count(), 1, "{events:?}");
    assert_eq!(net.coordinators[0].machine.pending(), 0);
    // The first worker comes back if it was forgotten, too.
    net.pass(Duration::from_secs(1));
    net.workers.iter_mut().for_each(|node| node.events.clear());
    net.submit(Request::new(7, vec![1]));
    let first = task(&mut net, 0);
    assert!(first.is_new);
    net.compute(0, &first);
    let last = if dead == Some(1) { 2 } else { 1 };
    let second = task(&mut net, last);
    net.events(0);
    net.compute(last, &second);
    assert_eq!(answer(&mut net).request, 2);
    assert_eq!(
        Failure::Transport(Fault::Gone).to_string(),
        "the way to a worker failed: a worker of the way is gone"
    );
}
