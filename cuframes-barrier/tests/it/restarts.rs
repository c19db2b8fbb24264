//! Participants that start again, or are lost, before all are there.

use cuframes_barrier::{Fault, FrontendConfig, FrontendEvent, Progress, Socket, Stage};

use crate::bytes::{dealer, hello, init, opening, ready, registration};
use crate::world::{TIMEOUT, World, config};

fn with_restarts(count: u16) -> FrontendConfig {
    let mut config = config(count);
    config.restarts = true;
    config
}

fn progress(world: &World, index: u16) -> Progress {
    world.frontend.progress().find(|(known, _)| *known == index).unwrap().1
}

#[test]
fn a_second_hello_starts_over_at_every_stage() {
    for steps in 1..=3 {
        let mut world = World::new(with_restarts(2));
        let mut words = [dealer(0), hello()].concat();
        if steps > 1 {
            words.extend(ready());
        }
        let old = world.call(Socket::Handshake, &words);
        if steps > 2 {
            world.call(Socket::Handshake, &[dealer(1), hello(), ready()].concat());
            world.call(Socket::Input, &[dealer(0), registration(0, 2)].concat());
            assert_eq!(progress(&world, 0), Progress::Registered);
        }
        let new = world.call(Socket::Handshake, &[dealer(0), hello()].concat());
        assert!(world.events.contains(&FrontendEvent::Restarted { index: 0 }));
        assert_eq!(progress(&world, 0), Progress::Greeted);
        assert_eq!(world.frontend.stage(), Some(Stage::Ready));
        assert_eq!(world.got(new), [opening("ROUTER", None), init(false)].concat());
        // The old connections are closed, also that of its registration.
        assert!(world.is_closed(old));
        assert_eq!(world.connections(), if steps > 2 { 2 } else { 1 });
        world.say(new, &ready());
        world.call(Socket::Input, &[dealer(0), registration(0, 2)].concat());
        world.join(1, 1, 2);
        world.run();
        assert_eq!(world.indices(), [0, 1]);
    }
}

#[test]
fn a_second_hello_on_the_same_connection_starts_over_too() {
    let mut world = World::new(with_restarts(1));
    let handshake = world.call(Socket::Handshake, &[dealer(0), hello(), hello(), ready()].concat());
    assert!(!world.is_closed(handshake));
    world.say(handshake, &[hello(), ready()].concat());
    world.call(Socket::Input, &[dealer(0), registration(0, 1)].concat());
    assert_eq!(world.indices(), [0]);
    assert_eq!(
        world.events.iter().filter(|event| **event == FrontendEvent::Restarted { index: 0 }).count(),
        2
    );
}

#[test]
fn processes_that_are_killed_and_started_again_come_in_at_every_stage() {
    for notices in [false, true] {
        for stage in 0..4 {
            let mut config = with_restarts(2);
            config.notices = notices;
            let mut world = World::new(config);
            let old = world.prepare(0);
            if stage > 0 {
                world.run();
            }
            if stage > 1 {
                world.ready(old, 0, 2);
            }
            if stage > 2 {
                let handshake = world.call(Socket::Handshake, &[dealer(1), hello(), ready()].concat());
                assert_eq!(progress(&world, 0), Progress::Registered);
                world.hang_up(handshake);
            }
            world.kill(old);
            assert_eq!(progress(&world, 0), if stage == 0 { Progress::Absent } else { Progress::Lost });
            let new = world.join(0, 0, 2);
            let other = world.join(1, 1, 2);
            world.run();
            assert_eq!(world.indices(), [0, 1], "stage {stage}");
            assert_eq!([new, other].map(|who| world.is_in(who)), [Some(notices); 2]);
        }
    }
}

#[test]
fn who_is_lost_has_to_come_back() {
    let mut world = World::new(with_restarts(2));
    let lost = world.join(0, 0, 2);
    let waiting = world.call(Socket::Handshake, &[dealer(1), hello(), ready()].concat());
    assert_eq!(progress(&world, 0), Progress::Registered);
    world.kill(lost);
    assert_eq!(world.events.last(), Some(&FrontendEvent::Progress { index: 0, progress: Progress::Lost }));
    world.call(Socket::Input, &[dealer(1), registration(1, 2)].concat());
    assert_eq!(world.frontend.stage(), Some(Stage::Registration));
    world.pass(TIMEOUT);
    let missing = vec![(0, Progress::Lost)];
    let fault = Fault::Timeout { stage: Stage::Registration, missing, after: TIMEOUT };
    assert_eq!(*world.fault(), fault);
    assert_eq!(fault.to_string(), "no registration within 30s from 0 (connection lost)");
    assert!(world.is_closed(waiting));
}

#[test]
fn a_connection_that_is_closed_for_what_it_sent_is_lost_too() {
    let mut world = World::new(with_restarts(1));
    let handshake = world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
    world.say(handshake, &[0xff]);
    assert!(world.is_closed(handshake));
    assert_eq!(progress(&world, 0), Progress::Lost);
    let told = &world.events[world.events.len() - 2..];
    assert!(matches!(told[0], FrontendEvent::Dropped { socket: Socket::Handshake, .. }));
    assert_eq!(told[1], FrontendEvent::Progress { index: 0, progress: Progress::Lost });
}

#[test]
fn what_the_dead_one_had_registered_does_not_count() {
    for lives_on in [false, true] {
        let mut world = World::new(with_restarts(2));
        world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
        let input = world.call(Socket::Input, &[dealer(0), registration(0, 2)].concat());
        if lives_on {
            // Its end is not seen before it says HELLO again.
            world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
            assert!(world.is_closed(input));
        } else {
            world.hang_up(input);
        }
        world.call(Socket::Handshake, &[dealer(1), hello(), ready()].concat());
        assert_eq!(world.frontend.stage(), Some(Stage::Registration));
        assert_eq!(progress(&world, 0), Progress::Ready);
        for index in 0..2 {
            let rank = u8::try_from(index).unwrap();
            world.call(Socket::Input, &[dealer(index), registration(rank, 2)].concat());
        }
        assert_eq!(world.indices(), [0, 1]);
    }
}

#[test]
fn what_the_dead_one_had_sent_and_is_read_only_now_does_not_count() {
    let mut world = World::new(with_restarts(1));
    world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
    let late = world.call(Socket::Input, &dealer(0));
    let new = world.call(Socket::Handshake, &[dealer(0), hello()].concat());
    world.say(late, &registration(0, 1));
    assert!(world.is_closed(late));
    world.say(new, &ready());
    assert_eq!(progress(&world, 0), Progress::Ready);
    world.call(Socket::Input, &[dealer(0), registration(0, 1)].concat());
    assert_eq!(world.indices(), [0]);
}

#[test]
fn a_faulty_registration_of_the_dead_one_does_not_count_either() {
    let mut world = World::new(with_restarts(2));
    let input = world.call(Socket::Input, &[dealer(0), registration(7, 2), registration(8, 2)].concat());
    world.hang_up(input);
    for rank in 0..2 {
        world.join(rank, rank, 2);
    }
    world.run();
    assert_eq!(world.indices(), [0, 1]);
}

#[test]
fn who_has_registered_may_close_the_handshake_connection() {
    // As the original participant does, while others are not ready yet.
    let mut world = World::new(with_restarts(2));
    let handshake = world.call(Socket::Handshake, &[dealer(0), hello(), ready()].concat());
    let input = world.call(Socket::Input, &[dealer(0), registration(0, 2)].concat());
    world.hang_up(handshake);
    assert_eq!(progress(&world, 0), Progress::Ready);
    // Without that registration it is lost.
    world.hang_up(input);
    assert_eq!(progress(&world, 0), Progress::Lost);
}

#[test]
fn the_connection_of_hello_is_needed_no_longer_when_ready_came_on_another() {
    let mut world = World::new(with_restarts(1));
    let hello = world.call(Socket::Handshake, &[dealer(0), hello()].concat());
    world.call(Socket::Handshake, &[dealer(0), ready()].concat());
    world.hang_up(hello);
    assert_eq!(progress(&world, 0), Progress::Ready);
}

#[test]
fn a_second_ready_and_a_second_registration_are_faults_all_the_same() {
    let mut world = World::new(with_restarts(2));
    world.call(Socket::Handshake, &[dealer(0), hello(), ready(), ready()].concat());
    assert_eq!(*world.fault(), Fault::ReadyTwice { index: 0 });
    let mut world = World::new(with_restarts(2));
    for index in 0..2 {
        world.call(Socket::Handshake, &[dealer(index), hello(), ready()].concat());
    }
    world.call(Socket::Input, &[dealer(0), registration(0, 2), registration(0, 2)].concat());
    assert_eq!(*world.fault(), Fault::RegisteredTwice { index: 0 });
}

#[test]
fn without_restarts_a_process_that_is_killed_and_started_again_ends_the_start() {
    let mut world = World::new(config(2));
    let old = world.join(0, 0, 2);
    world.run();
    world.kill(old);
    assert_eq!(progress(&world, 0), Progress::Ready);
    world.join(0, 0, 2);
    world.run();
    assert_eq!(*world.fault(), Fault::HelloTwice { index: 0 });
}
