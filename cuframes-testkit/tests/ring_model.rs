//! Random operations of honest subscribers on the ring, against a model of §5 that knows no atomics.

use std::time::Duration;

use cuframes_core::Policy;
use cuframes_core::ring::Seq;
use cuframes_core::roster::Departure;
use cuframes_testkit::model::{Join, ModelRing};
use cuframes_testkit::strategies::config;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Publish,
    PublishAs(u64, bool),
    ClaimAndDrop,
    Park,
    Join(Join),
    Leave(usize, Departure),
    Next(usize),
    Get(usize, u64),
    Release(usize, usize),
    ReleaseLate(usize, usize),
    Sleep(usize, bool),
    Wait(u64),
}

/// How far a number is above the newest one.
fn jump() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..=6_u64, 6 => 7..2000_u64, 1 => any::<u64>()]
}

fn op() -> impl Strategy<Value = Op> {
    let reader = || 0..4_usize;
    let departure = prop_oneof![Just(Departure::Clean), Just(Departure::Abrupt)];
    let join = any::<[bool; 5]>().prop_map(|[strict, lease, hint, plain, no_ack]| Join {
        strict,
        lease,
        hint,
        plain,
        no_ack,
    });
    prop_oneof![
        8 => Just(Op::Publish),
        3 => (jump(), prop::bool::weighted(0.8)).prop_map(|(jump, commit)| Op::PublishAs(jump, commit)),
        1 => Just(Op::ClaimAndDrop),
        1 => Just(Op::Park),
        1 => join.prop_map(Op::Join),
        1 => (reader(), departure).prop_map(|(reader, departure)| Op::Leave(reader, departure)),
        6 => reader().prop_map(Op::Next),
        3 => (reader(), 0..8_u64).prop_map(|(reader, back)| Op::Get(reader, back)),
        4 => (reader(), reader()).prop_map(|(reader, frame)| Op::Release(reader, frame)),
        1 => (reader(), reader()).prop_map(|(reader, frame)| Op::ReleaseLate(reader, frame)),
        2 => (reader(), any::<bool>()).prop_map(|(reader, parks)| Op::Sleep(reader, parks)),
        1 => (0..3000_u64).prop_map(Op::Wait),
    ]
}

fn run(ring: &mut ModelRing, op: &Op) {
    let stage = &mut ring.stage;
    match *op {
        Op::Publish => {
            ring.publish(true, |_| {});
        }
        Op::PublishAs(jump, commit) => {
            // 0 is a number that is used, and too far is none.
            if let Some(number) = Seq::new(stage.newest().saturating_add(jump)) {
                ring.publish_as(Some(number), commit, |_| {});
            }
        }
        Op::ClaimAndDrop => {
            ring.publish(false, |_| {});
        }
        Op::Park => ring.park(),
        Op::Join(wants) => {
            if stage.subscribers.len() < 4 {
                stage.join(wants);
            }
        }
        Op::Leave(reader, departure) => stage.leave(reader, departure),
        Op::Next(reader) => stage.next(reader),
        Op::Get(reader, back) => stage.get(reader, back),
        Op::Release(reader, frame) => stage.release(reader, frame),
        Op::ReleaseLate(reader, frame) => stage.release_late(reader, frame),
        Op::Sleep(reader, parks) => stage.park(reader, parks),
        Op::Wait(ms) => stage.wait(Duration::from_millis(ms)),
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn the_ring_does_what_the_model_does(
        size in 1..=5_u64, strict_wait: bool, ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut ring = ModelRing::new(size, if strict_wait { Policy::STRICT_WAIT } else { Policy::DROP_OLDEST });
        for op in &ops {
            run(&mut ring, op);
        }
        ring.check_that_claims_end();
    }
}
