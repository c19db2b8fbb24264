//! Whatever the socket does, the frames are the same.

use std::time::Duration;

use cuframes_bridge::stream::SenderConfig;
use proptest::prelude::*;

use crate::world::{World, published};

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// The next frame, of a publisher that may be another one than before.
    Send {
        next_epoch: bool,
        skip: u64,
    },
    /// So many moves.
    Move(u8),
    Cut,
    RestartReceiver,
    Wait(u16),
    Fetch(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (prop::bool::weighted(0.1), 0_u64..3).prop_map(|(next_epoch, skip)| Step::Send { next_epoch, skip }),
        8 => (1_u8..60).prop_map(Step::Move),
        1 => Just(Step::Cut),
        1 => Just(Step::RestartReceiver),
        2 => (0_u16..400).prop_map(Step::Wait),
        1 => (0_u8..9).prop_map(Step::Fetch),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_strict_link_loses_nothing_and_doubles_nothing_whatever_breaks(
        steps in prop::collection::vec(step(), 0..60),
        cuts in prop::collection::vec(1_usize..900, 1..9),
        window in 1_usize..5,
        buffer in 50_usize..5000,
    ) {
        let mut world = World::strict(window);
        (world.cuts, world.buffer) = (cuts, buffer);
        let (mut epoch, mut seq, mut given) = (1, 0, Vec::new());
        for step in steps {
            match step {
                Step::Send { next_epoch, skip } => {
                    if !world.sender.has_room() {
                        continue;
                    }
                    if next_epoch {
                        (epoch, seq) = (epoch + 1, 0);
                    }
                    seq += 1 + skip;
                    prop_assert!(world.send(epoch, seq));
                    given.push(published(epoch, seq));
                }
                Step::Move(n) => (0..n).for_each(|_| { world.step(); }),
                Step::Cut => world.cut(),
                Step::RestartReceiver => world.restart_receiver(),
                Step::Wait(ms) => {
                    world.now = world.now + Duration::from_millis(ms.into());
                }
                Step::Fetch(_) => {}
            }
        }
        world.pass(Duration::from_secs(1));
        prop_assert_eq!(&world.published, &given);
        prop_assert_eq!(world.sender.under_way(), 0);
        prop_assert_eq!(world.sender.stats().delivered, given.len() as u64);
        prop_assert_eq!(world.sender.stats().refused, 0);
    }

    #[test]
    fn a_link_for_the_newest_accounts_for_each_frame(
        steps in prop::collection::vec(step(), 0..60),
        cuts in prop::collection::vec(1_usize..900, 1..9),
    ) {
        let mut world = World::new(SenderConfig::new("there"));
        world.cuts = cuts;
        let (mut seq, mut given) = (0, Vec::new());
        for step in steps {
            match step {
                Step::Send { skip, .. } => {
                    seq += 1 + skip;
                    if world.send(1, seq) {
                        given.push(published(1, seq));
                    }
                }
                Step::Move(n) => (0..n).for_each(|_| { world.step(); }),
                Step::Cut => world.cut(),
                Step::RestartReceiver => world.restart_receiver(),
                Step::Wait(ms) => world.now = world.now + Duration::from_millis(ms.into()),
                Step::Fetch(n) => {
                    if let Some((_, far)) = world.link {
                        world.receiver.fetch(world.now, far, Some(n.into()));
                    }
                }
            }
        }
        world.pass(Duration::from_secs(1));
        // What was published was given, in this order, once.
        let mut rest = given.iter();
        for frame in &world.published {
            prop_assert!(rest.any(|other| other == frame), "{} comes from nowhere, or again", frame.seq);
        }
        let stats = world.sender.stats();
        prop_assert_eq!(stats.delivered + stats.given_up, given.len() as u64);
        prop_assert!(world.published.len() as u64 >= stats.delivered);
    }

    #[test]
    fn what_a_stranger_says_harms_nobody_else(noise in prop::collection::vec(any::<u8>(), 0..600), cut in 1_usize..70) {
        use cuframes_core::streams::Machine;
        let mut world = World::strict(2);
        world.run();
        let stranger = world.receiver.handle_accepted(world.now, 0).unwrap();
        for piece in noise.chunks(cut) {
            world.receiver.handle_bytes(world.now, stranger, piece);
        }
        prop_assert!(world.send(1, 1));
        world.run();
        prop_assert_eq!(&world.published, &[published(1, 1)]);
    }
}
