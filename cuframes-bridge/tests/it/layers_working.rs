//! A worker and its requests: what it does, in which order, and what it refuses.

use std::time::Duration;

use cuframes_bridge::layers::{Fault, FinishError, Outcome, Wants, WorkerEvent};
use cuframes_bridge::wire::{
    FrameType, Hop, Message, ResultKind, Telemetry, Width, Work, WorkFlags, WorkResult, extend_hash,
    token_hash,
};
use cuframes_core::streams::Machine as _;

use crate::bytes::{frame, vector, whole};
use crate::layers_peers::{LAYERS, all, alone, computed, encoded, messages, said, work, worker_config};
use crate::layers_world::{Net, Who};

/// The only result.
pub(crate) fn result(messages: Vec<Message>) -> WorkResult {
    match <[Message; 1]>::try_from(messages) {
        Ok([Message::Result(result)]) => *result,
        other => panic!("{other:?}"),
    }
}

/// The numbers of requests that are answered.
pub(crate) fn answered(messages: &[Message]) -> Vec<u64> {
    let number = |message: &Message| match message {
        Message::Result(result) => result.request,
        other => panic!("{other:?}"),
    };
    messages.iter().map(number).collect()
}

/// What a worker for all layers answers to a request that it refuses at once.
fn refusal(change: impl FnOnce(&mut Work)) -> String {
    refusal_of((0, LAYERS - 1), change)
}

fn refusal_of(layers: (u32, u32), change: impl FnOnce(&mut Work)) -> String {
    let (mut net, caller) = alone(|config| *config = worker_config(layers, 1));
    let mut wrong = work(layers, 7, 9, &[], &[1, 2]);
    change(&mut wrong);
    let result = result(net.tell(caller, &said(wrong)));
    assert_eq!((result.request, result.status, result.result_hash), (9, 1, 0));
    assert_eq!((result.kind, result.payload_bits, &result.telemetry[..]), (ResultKind::ACK, 0, &[][..]));
    // It costs nothing else: the next one is as if there had been none.
    assert!(!net.is_closed(caller) && net.tasks(0).is_empty());
    assert_eq!(net.tell(caller, &said(work(layers, 7, 10, &[], &[1, 2]))), []);
    assert!(net.task(0).is_new);
    result.error().unwrap()
}

fn rehash(work: &mut Work) {
    work.result_hash = extend_hash(work.prefix_hash, &work.tokens);
}

#[test]
fn a_request_is_computed_by_the_owner_and_answered_with_where_its_time_went() {
    let (mut net, caller) = alone(|_| {});
    assert_eq!(net.tell(caller, &said(all(7, 1, &[], &[1, 300]))), []);
    let task = net.task(0);
    assert_eq!((task.session, task.request, task.pos0, task.is_new), (7, 1, 0, true));
    assert_eq!((&task.tokens[..], &task.activations[..]), (&[1, 300][..], &[][..]));
    assert_eq!((task.width, task.wants), (Width::F32, Wants::Logits));
    net.now = net.now + Duration::from_micros(1500);
    net.finish(0, task.id, Outcome::Logits(vec![1, 2, 3, 4]));
    let result = result(messages(&net.heard(caller)));
    assert_eq!(
        result,
        WorkResult {
            request: 1,
            result_hash: token_hash(&[1, 300]),
            status: 0,
            kind: ResultKind::LOGITS,
            payload_bits: 32,
            telemetry: vec![Telemetry {
                layer_start: 0,
                layer_end: 42,
                route_index: 0,
                pos0: 0,
                n_tokens: 2,
                eval_usec: 1500,
                downstream_wait_usec: 0,
                forward_send_usec: 0,
                input_bytes: 8,
                output_bytes: 4,
            }],
            payload: vec![1, 2, 3, 4],
        }
    );
}

#[test]
fn acknowledgements_hidden_states_and_errors_are_the_bytes_of_the_original() {
    let session = 0x1122_3344_5566_7788;
    // The request of the vector, of which only an acknowledgement is wanted.
    let (mut net, caller) = alone(|config| {
        *config = worker_config((21, 42), 41_001);
        config.values = 2;
    });
    let Message::Work(mut work) = messages(&vector!("work")).remove(0) else { panic!("it is a request") };
    work.flags = WorkFlags(WorkFlags::INPUT.0 | WorkFlags::RESET.0 | WorkFlags::ACK_ONLY.0);
    net.tell(caller, &Message::Work(work.clone()));
    let task = net.task(0);
    assert_eq!((task.session, task.wants, &task.activations), (session, Wants::Ack, &work.activations));
    net.now = net.now + Duration::from_micros(1500);
    net.finish(0, task.id, Outcome::Ack);
    assert_eq!(net.heard(caller), vector!("result_ack"));

    // A hidden state of the first layers.
    let (mut net, caller) = alone(|config| *config = worker_config((0, 20), 1));
    net.tell(caller, &said(crate::layers_peers::work((0, 20), session, 1, &[], &[1])));
    let task = net.task(0);
    net.compute(0, &task);
    net.heard(caller);
    let mut work = crate::layers_peers::work((0, 20), session, 0x1_0000_0002, &[1], &[300]);
    (work.pos0, work.activation_bits) = (5, 16);
    net.tell(caller, &said(work));
    let task = net.task(0);
    assert_eq!((task.wants, task.width, task.is_new), (Wants::Hidden, Width::BF16, false));
    let mut payload = Vec::new();
    Width::BF16.encode(&[1.0, -2.0, 0.5, 3.0], &mut payload);
    net.now = net.now + Duration::from_micros(900);
    net.finish(0, task.id, Outcome::Hidden(payload));
    assert_eq!(net.heard(caller), vector!("result_hidden"));

    // A session that stands elsewhere.
    let (mut net, caller) = alone(|_| {});
    assert_eq!(net.say(caller, &encoded(&said(all(7, 3, &[1], &[300])))), vector!("result_error"));
}

#[test]
fn a_request_that_is_wrong_is_refused_and_the_connection_goes_on() {
    assert_eq!(refusal(|work| work.route.hops.clear()), "the route has no hops");
    assert_eq!(refusal(|work| work.route.index = 1), "hop 1 of a route of 1");
    assert_eq!(refusal(|work| work.model_id = 2), "model 2 is not that of this worker");
    for layers in [(1, 42), (0, 41), (3, 2)] {
        let text = refusal(|work| (work.layer_start, work.layer_end) = layers);
        assert_eq!(text, format!("layers {}..{} are not those of this worker", layers.0, layers.1));
    }
    assert_eq!(refusal(|work| work.flags.0 |= 16), "invalid flags 0x12");
    assert_eq!(
        refusal(|work| {
            work.tokens.clear();
            rehash(work);
        }),
        "there are no tokens"
    );
    assert_eq!(refusal(|work| work.pos0 = 99), "101 tokens do not fit into a context of 100");
    assert_eq!(refusal(|work| work.pos0 = u32::MAX), "4294967297 tokens do not fit into a context of 100");
    let text = "the first layer takes no activations, and every other one does";
    assert_eq!(refusal(|work| work.activations = vec![0; 16]), text);
    assert_eq!(refusal(|work| work.flags.0 |= 1), text);
    assert_eq!(
        refusal(|work| {
            work.flags.0 |= 1;
            work.activations = vec![0; 16];
        }),
        text
    );
    assert_eq!(
        refusal(|work| {
            work.tokens = vec![1, 1000];
            rehash(work);
        }),
        "token 1000 is not in the vocabulary"
    );
    assert_eq!(refusal(|work| work.result_hash = 5), "the tokens have another hash than 0x0000000000000005");
    assert_eq!(refusal(|work| work.activation_bits = 12), "there are no activations of 12 bits");
}

#[test]
fn activations_are_there_where_they_are_needed_and_have_the_right_length() {
    let middle = |change: fn(&mut Work)| refusal_of((5, 10), change);
    let text = "the first layer takes no activations, and every other one does";
    assert_eq!(middle(|work| work.activations.clear()), text);
    assert_eq!(middle(|work| work.flags = WorkFlags::default()), text);
    assert_eq!(middle(|work| work.activations = vec![0; 15]), "activations of 15 bytes, where 16 are needed");
    assert_eq!(middle(|work| work.activation_bits = 16), "activations of 16 bytes, where 8 are needed");
    assert_eq!(middle(|work| work.activation_bits = 8), "activations of 16 bytes, where 4 are needed");
    // The last of several that are wrong is not named.
    assert_eq!(
        middle(|work| {
            work.activations.clear();
            work.model_id = 3;
            work.result_hash = 3;
        }),
        "model 3 is not that of this worker"
    );
}

#[test]
fn logits_come_from_the_last_layer_with_the_output_head_on_the_last_hop() {
    let want = |work: &mut Work| work.flags = work.flags.union(WorkFlags::LOGITS);
    assert_eq!(refusal_of((0, 20), want), "this worker has no logits");
    let (mut net, caller) = alone(|config| config.has_output = false);
    let text = result(net.tell(caller, &said(all(7, 1, &[], &[1])))).error();
    assert_eq!(text.unwrap(), "this worker has no logits");
    // A hidden state it has.
    let mut hidden = all(7, 2, &[], &[1]);
    hidden.flags = WorkFlags::default();
    net.tell(caller, &said(hidden));
    assert_eq!(net.task(0).wants, Wants::Hidden);
}

#[test]
fn every_hop_of_a_route_has_to_be_one() {
    let hop = |layers: (u32, u32)| Hop {
        host: "h".into(),
        port: 2,
        layer_start: layers.0,
        layer_end: layers.1,
        flags: 0,
    };
    let two = |work: &mut Work, next: Hop| work.route.hops.push(next);
    for (at, next) in [
        (1, hop((20, 42))),
        (1, hop((22, 42))),
        (1, hop((21, 43))),
        (1, hop((21, 20))),
        (1, Hop { port: 0, ..hop((21, 42)) }),
        (1, Hop { port: 65_536, ..hop((21, 42)) }),
        (1, Hop { flags: 2, ..hop((21, 42)) }),
        // Logits of another layer than the last one.
        (1, Hop { flags: Hop::LOGITS, ..hop((21, 41)) }),
    ] {
        assert_eq!(refusal_of((0, 20), |work| two(work, next)), format!("hop {at} of the route can't be"));
    }
    // Logits before the last hop.
    let early = |work: &mut Work| {
        work.route.hops[0].flags = Hop::LOGITS;
        two(work, hop((21, 42)));
    };
    assert_eq!(refusal_of((0, 20), early), "hop 0 of the route can't be");
    let other = |work: &mut Work| {
        work.route.hops = vec![hop((0, 10)), hop((11, 42))];
        work.route.index = 1;
    };
    assert_eq!(refusal_of((0, 20), other), "the hop of the route has other layers than the request");
    // A worker with the last layer whose hop is not the last one is followed by layers that there are not.
    let text = refusal(|work| two(work, hop((43, 50))));
    assert_eq!(text, "hop 0 of the route can't be");
}

#[test]
fn a_request_that_can_not_be_read_is_refused_by_its_number() {
    let (mut net, caller) = alone(|_| {});
    let good = encoded(&said(all(7, 0x1_0000_0009, &[], &[1, 2])));
    // One byte less of tokens, and a route that is no route.
    for (at, text) in
        [(71, "WORK token_bytes: 0x9 is not allowed"), (103, "WORK host: the frame ends within it")]
    {
        let mut bad = good.clone();
        bad[at] += if at == 71 { 1 } else { 200 };
        let result = result(messages(&net.say(caller, &bad)));
        assert_eq!((result.request, result.status), (0x1_0000_0009, 1));
        assert!(result.error().unwrap().starts_with(text), "{:?}", result.error());
    }
    // Too short: what is there of the number is believed.
    for (len, request) in [(79, 0x1_0000_0009), (20, 0x1_0000_0009), (19, 0), (0, 0)] {
        let short = whole(FrameType::WORK, &good[12..12 + len]);
        for pieces in [1, 5, 1000] {
            let mut heard = Vec::new();
            for piece in short.chunks(pieces) {
                heard.extend(net.say(caller, piece));
            }
            let result = result(messages(&heard));
            assert_eq!((result.request, result.status), (request, 1));
            let text = format!("a frame WORK of {len} bytes; 80 to 67108864 are allowed");
            assert_eq!(result.error().unwrap(), text);
        }
    }
    net.say(caller, &good);
    assert_eq!(net.task(0).request, 0x1_0000_0009);
}

#[test]
fn results_come_in_the_order_of_the_requests_whoever_is_done_first() {
    let (mut net, caller) = alone(|config| config.prefetch = 8);
    for session in 1..=4 {
        net.tell(caller, &said(all(session, session, &[], &[5])));
    }
    // One that is refused waits for its turn, too.
    let mut wrong = all(5, 5, &[], &[5]);
    wrong.model_id = 2;
    assert_eq!(net.tell(caller, &said(wrong)), []);
    let tasks = net.tasks(0);
    assert_eq!(tasks.iter().map(|task| task.request).collect::<Vec<_>>(), [1, 2, 3, 4]);
    for (done, answers) in [(3, &[][..]), (1, &[]), (0, &[1, 2]), (2, &[3, 4, 5])] {
        net.compute(0, &tasks[done]);
        assert_eq!(answered(&messages(&net.heard(caller))), answers);
    }
}

#[test]
fn so_many_requests_are_read_ahead_and_no_more() {
    for prefetch in [1, 2, 8] {
        let (mut net, caller) = alone(|config| config.prefetch = prefetch);
        let conn = net.conn(caller);
        let mut requests = (1..).map(|session| encoded(&said(all(session, session, &[], &[5]))));
        for number in 0..=prefetch {
            assert!(net.workers[0].machine.is_hungry(conn), "after {number}");
            net.say(caller, &requests.next().unwrap());
        }
        assert!(!net.workers[0].machine.is_hungry(conn));
        net.say(caller, &requests.by_ref().take(3).flatten().collect::<Vec<u8>>());
        let tasks = net.tasks(0);
        assert_eq!(tasks.len(), prefetch + 1);
        // An answer that waits for its turn makes no room.
        net.compute(0, &tasks[1]);
        assert_eq!(net.tasks(0), []);
        net.compute(0, &tasks[0]);
        assert_eq!(net.tasks(0).len(), 2);
        assert!(!net.workers[0].machine.is_hungry(conn));
    }
}

#[test]
fn what_a_driver_reads_although_it_should_not_is_kept_up_to_a_bound() {
    let (mut net, caller) = alone(|config| config.backlog_bytes = 10_000);
    net.is_heeded = false;
    let request = |number| encoded(&said(all(7, number, &[1], &[5])));
    net.tell(caller, &said(all(7, 1, &[], &[1])));
    let first = net.task(0);
    let mut sent = 1;
    // All of them wait for the first one, and most are not even looked at.
    while sent * request(1).len() < 9_500 {
        sent += 1;
        net.say(caller, &request(u64::try_from(sent).unwrap()));
    }
    net.compute(0, &first);
    let heard = messages(&net.heard(caller));
    let second = net.task(0);
    net.compute(0, &second);
    let heard = [heard, messages(&net.heard(caller))].concat();
    assert_eq!(answered(&heard), (1..=u64::try_from(sent).unwrap()).collect::<Vec<_>>());
    assert_eq!(net.closed(0, caller), None);

    net.tell(caller, &said(all(8, 1, &[], &[1])));
    net.tasks(0);
    for number in 0..200 {
        net.say(caller, &request(number));
    }
    assert_eq!(net.closed(0, caller), Some(Fault::Flood));
}

#[test]
fn an_outcome_that_is_not_wanted_is_none_and_the_task_still_waits() {
    let (mut net, caller) = alone(|_| {});
    net.tell(caller, &said(all(7, 1, &[], &[1])));
    let task = net.task(0);
    let now = net.now;
    let finish = |net: &mut Net, outcome| net.workers[0].machine.finish(now, task.id, outcome);
    for wrong in [Outcome::Ack, Outcome::Hidden(vec![0; 4])] {
        assert_eq!(finish(&mut net, wrong), Err(FinishError::Kind(Wants::Logits)));
    }
    let error = Err(FinishError::Bytes { got: 5, expected: 4 });
    assert_eq!(finish(&mut net, Outcome::Logits(vec![0; 5])), error);
    assert_eq!(net.workers[0].machine.loaded(now, task.id, Ok(())), Err(FinishError::Unknown(task.id)));
    assert_eq!(finish(&mut net, Outcome::Logits(vec![0; 4])), Ok(()));
    assert_eq!(finish(&mut net, Outcome::Logits(vec![0; 4])), Err(FinishError::Unknown(task.id)));
    net.run();
    assert_eq!(answered(&messages(&net.heard(caller))), [1]);
}

#[test]
fn nobody_waits_for_what_was_asked_on_a_connection_that_is_gone() {
    let (mut net, caller) = alone(|config| config.prefetch = 2);
    net.tell(caller, &said(all(7, 1, &[], &[1])));
    net.tell(caller, &said(all(7, 2, &[1], &[2])));
    let task = net.task(0);
    let conn = net.conn(caller);
    net.hang_up(caller);
    let closed = WorkerEvent::Closed { conn, fault: Fault::Ended };
    assert_eq!(net.worker_events(0), [WorkerEvent::Abandoned { task: task.id }, closed]);
    // Its session is not free before it is done, and then it stands where it got to.
    let other = net.call(Who::Worker(0));
    net.workers[0].events.clear();
    net.tell(other, &said(all(7, 1, &[1], &[2])));
    assert_eq!(net.tasks(0), []);
    net.compute(0, &task);
    let next = net.task(0);
    assert_eq!((next.request, next.is_new, computed(&next)), (1, false, computed(&next)));
}

#[test]
fn a_frame_that_a_worker_does_not_take_is_answered_with_an_error_and_the_end() {
    for (bytes, kind, text) in [
        (vector!("hello"), FrameType::HELLO, "unexpected frame HELLO"),
        (vector!("result_ack"), FrameType::RESULT, "unexpected frame RESULT"),
        (vector!("begin"), FrameType::SNAPSHOT_BEGIN, "unexpected frame SNAPSHOT_BEGIN"),
        (vector!("chunk"), FrameType::CHUNK, "unexpected frame SNAPSHOT_CHUNK"),
        (vector!("done"), FrameType::DONE, "unexpected frame SNAPSHOT_DONE"),
        (whole(FrameType(77), &[1; 1000]), FrameType(77), "unexpected frame 77"),
    ] {
        let (mut net, caller) = alone(|_| {});
        let heard = net.say(caller, &bytes);
        assert_eq!(messages(&heard), [Message::Error(text.into())]);
        assert_eq!(net.closed(0, caller), Some(Fault::Unexpected(kind)));
        assert!(net.is_closed(caller));
    }
    // It is drained before.
    let (mut net, caller) = alone(|_| {});
    assert!(net.say(caller, &frame(FrameType(77), 10, &[1; 9])).is_empty());
    assert_eq!(messages(&net.say(caller, &[1])).len(), 1);
}

#[test]
fn an_error_of_the_peer_and_what_is_no_frame_end_the_connection_without_a_word() {
    let (mut net, caller) = alone(|_| {});
    assert_eq!(net.tell(caller, &Message::Error("no".into())), []);
    assert_eq!(net.closed(0, caller), Some(Fault::Remote("no".into())));
    let (mut net, caller) = alone(|_| {});
    assert!(net.say(caller, b"GET / HTTP/1.1").is_empty());
    assert!(matches!(net.closed(0, caller), Some(Fault::Frame(_))) && net.is_closed(caller));
}
