//! How a start goes when nothing is wrong, and when somebody is missing.

use std::time::Duration;

use cuframes_barrier::{Fault, FrontendEvent, Progress, Socket, Stage};
use cuframes_core::streams::Machine as _;

use crate::bytes::{dealer, hello, init, opening, ready, ready_command, registration};
use crate::world::{TIMEOUT, World, config};

#[test]
fn any_number_of_participants_starts_together_in_whatever_order_they_come() {
    for count in [1, 2, 8] {
        for rotation in 0..count {
            for notices in [false, true] {
                let mut config = config(count);
                (config.first_index, config.notices) = (300, notices);
                let mut world = World::new(config);
                let order: Vec<u16> = (0..count).map(|n| (n + rotation) % count).collect();
                for rank in &order {
                    assert!(world.events.iter().all(|event| !matches!(event, FrontendEvent::Started(_))));
                    world.join(300 + rank, *rank, count);
                    world.run();
                }
                assert_eq!(world.indices(), (300..300 + count).collect::<Vec<_>>());
                let ranks = world.started().iter().map(|who| who.registration.data_parallel_rank);
                assert!(ranks.eq(0..i64::from(count)));
                for participant in 0..usize::from(count) {
                    assert_eq!(world.is_in(participant), Some(notices));
                    assert!(world.participants[participant].machine.is_finished());
                }
                assert!(world.frontend.is_finished());
                assert_eq!((world.frontend.stage(), world.frontend.poll_timeout()), (None, None));
            }
        }
    }
}

#[test]
fn a_start_goes_through_pipes_of_one_byte() {
    for notices in [false, true] {
        let mut config = config(3);
        config.notices = notices;
        let mut world = World::new(config);
        world.width = 1;
        for rank in 0..3 {
            world.join(rank, rank, 3);
        }
        world.run();
        assert_eq!(world.indices(), [0, 1, 2]);
        assert_eq!([0, 1, 2].map(|who| world.is_in(who)), [Some(notices); 3]);
    }
}

#[test]
fn what_a_participant_is_sent_is_what_the_original_sends() {
    let mut world = World::new(config(1));
    let handshake = world.call(Socket::Handshake, &[dealer(0), hello()].concat());
    let expected = [opening("ROUTER", None), init(false)].concat();
    assert_eq!(world.got(handshake), expected);
    world.say(handshake, &ready());
    let input = world.call(Socket::Input, &[dealer(0), registration(0, 1)].concat());
    let output = world.call(Socket::Output, &opening("PUSH", None));
    assert_eq!(world.indices(), [0]);
    assert_eq!(world.got(handshake), expected);
    assert_eq!(world.got(input), opening("ROUTER", None));
    assert_eq!(world.got(output), opening("PULL", None));
    assert!(world.is_closed(handshake) && !world.is_closed(input) && !world.is_closed(output));
}

#[test]
fn a_registration_that_comes_before_the_others_are_ready_is_used_later() {
    let mut world = World::new(config(2));
    world.join(0, 0, 2);
    world.run();
    assert_eq!(world.frontend.stage(), Some(Stage::Ready));
    assert!(world.frontend.progress().eq([(0, Progress::Ready), (1, Progress::Absent)]));
    world.join(1, 1, 2);
    world.run();
    assert_eq!(world.indices(), [0, 1]);
}

#[test]
fn a_registration_may_even_come_before_hello() {
    let mut world = World::new(config(1));
    world.call(Socket::Input, &[dealer(0), registration(0, 1)].concat());
    assert_eq!(world.events, []);
    world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
    assert_eq!(world.indices(), [0]);
}

#[test]
fn each_step_of_a_participant_is_told() {
    let mut world = World::new(config(1));
    let handshake = world.call(Socket::Handshake, &[dealer(0), hello()].concat());
    let told = |world: &World| {
        let told = world.events.iter().map(|event| match event {
            FrontendEvent::Progress { index: 0, progress } => Some(*progress),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(told(&world), [Some(Progress::Greeted)]);
    world.say(handshake, &ready());
    world.call(Socket::Input, &[dealer(0), registration(0, 1)].concat());
    let steps = [Some(Progress::Greeted), Some(Progress::Ready), Some(Progress::Registered), None];
    assert_eq!(told(&world), steps);
}

#[test]
fn a_timeout_names_the_stage_and_who_is_missing_and_how_far_each_is() {
    let mut world = World::new(config(4));
    world.call(Socket::Handshake, &[dealer(1), hello()].concat());
    world.call(Socket::Handshake, &[dealer(2), hello(), ready()].concat());
    world.call(Socket::Handshake, &dealer(3));
    world.pass(TIMEOUT - Duration::from_nanos(1));
    assert_eq!(world.frontend.stage(), Some(Stage::Ready));
    world.pass(Duration::from_nanos(1));
    let missing = vec![(0, Progress::Absent), (1, Progress::Greeted), (3, Progress::Absent)];
    let fault = Fault::Timeout { stage: Stage::Ready, missing, after: TIMEOUT };
    assert_eq!(*world.fault(), fault);
    let text = "no READY within 30s from 0 (nothing heard), 1 (said HELLO), 3 (nothing heard)";
    assert_eq!(fault.to_string(), text);
    assert_eq!((world.frontend.stage(), world.connections()), (None, 0));
}

#[test]
fn a_timeout_of_the_second_stage_names_who_has_not_registered() {
    let mut world = World::new(config(2));
    world.join(1, 1, 2);
    world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
    world.pass(TIMEOUT);
    let missing = vec![(0, Progress::Ready)];
    let fault = Fault::Timeout { stage: Stage::Registration, missing, after: TIMEOUT };
    assert_eq!(*world.fault(), fault);
    assert_eq!(fault.to_string(), "no registration within 30s from 0 (said READY)");
}

#[test]
fn there_is_one_deadline_for_everything() {
    let mut world = World::new(config(1));
    world.pass(TIMEOUT / 2);
    let handshake = world.call(Socket::Handshake, &[dealer(0), hello()].concat());
    world.pass(TIMEOUT / 4);
    world.say(handshake, &ready());
    world.pass(TIMEOUT / 4);
    assert!(matches!(world.fault(), Fault::Timeout { stage: Stage::Registration, .. }));
}

#[test]
fn nothing_comes_after_a_start() {
    let mut world = World::new(config(1));
    let output = world.call(Socket::Output, &opening("PUSH", None));
    let input = [dealer(0), registration(0, 1)].concat();
    let input = world.call(Socket::Input, &input);
    world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
    assert_eq!(world.indices(), [0]);
    let told = world.events.len();
    // A result, a second registration, one deadline, a cancel, what is no ZMTP, and the end.
    world.say(output, &crate::bytes::frame(0, b"result"));
    world.say(input, &registration(0, 1));
    world.pass(TIMEOUT);
    world.frontend.cancel(world.now, "too late");
    world.say(output, &[0xff; 9]);
    world.hang_up(input);
    assert_eq!(world.events.len(), told);
    assert!(world.is_closed(output));
}

#[test]
fn an_output_socket_that_connects_after_the_start_is_let_in() {
    let mut world = World::new(config(1));
    world.is_listening[2] = false;
    let participant = world.join(0, 0, 1);
    world.run();
    assert_eq!(world.indices(), [0]);
    assert_eq!(world.is_in(participant), None);
    world.is_listening[2] = true;
    world.run();
    assert_eq!(world.is_in(participant), Some(false), "{:?}", world.participants[0].events);
    assert!(world.try_call(Socket::Handshake).is_none());
}

#[test]
fn nobody_is_let_in_after_a_failure() {
    let mut world = World::new(config(1));
    world.frontend.cancel(world.now, "no");
    assert!(Socket::ALL.iter().all(|socket| world.try_call(*socket).is_none()));
    assert!(world.frontend.handle_accepted(world.now, 3).is_none());
}

#[test]
fn ready_and_hello_may_come_on_two_connections_of_one_id() {
    // The original does not tell them apart.
    let mut world = World::new(config(1));
    world.call(Socket::Handshake, &[dealer(0), hello()].concat());
    world.call(Socket::Handshake, &[dealer(0), ready()].concat());
    world.call(Socket::Input, &[dealer(0), registration(0, 1)].concat());
    assert_eq!(world.indices(), [0]);
}

#[test]
fn a_dealer_of_libzmq_is_understood() {
    let mut world = World::new({
        let mut config = config(1);
        config.first_index = 5;
        config
    });
    let handshake = world.call(Socket::Handshake, &crate::bytes::vector!("dealer_stream")[..10]);
    // It says the rest when it has seen our greeting.
    assert_eq!(world.got(handshake), crate::bytes::greeting());
    world.say(handshake, &crate::bytes::vector!("dealer_stream")[10..]);
    let expected = [
        &crate::bytes::greeting()[..],
        &ready_command("ROUTER", None),
        &crate::bytes::vector!("router_init"),
    ];
    assert_eq!(world.got(handshake), expected.concat());
}
