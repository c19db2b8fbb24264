//! Scripts for a ring and everybody around it (§5).

use std::time::Duration;

use cuframes_core::Policy;
use cuframes_core::ring::Seq;
use cuframes_core::roster::Departure;

use super::Script;
use crate::model::{Join, ModelRing, Stage, Subscriber};

/// Reads `data` as a ring and what its publisher and its subscribers do, honest or not. The ring agrees with the model,
/// and in the end the publisher can go on.
pub fn ring_script(data: &[u8]) {
    let mut script = Script(data);
    let kind = script.byte();
    let policy = if kind & 16 == 0 { Policy::DROP_OLDEST } else { Policy::STRICT_WAIT };
    let honesty = match kind >> 5 {
        0..4 => Honesty::All,
        4..6 => Honesty::OwnWords,
        _ => Honesty::None,
    };
    let mut ring = ModelRing::new(u64::from(1 + kind % 16), policy);
    while let Some(choice) = script.next() {
        let argument = choice / 16;
        match choice % 16 {
            0..3 => {
                ring.publish(true, |stage| meanwhile(stage, argument / 4, &mut script, honesty));
            }
            3 => {
                ring.publish(false, |stage| meanwhile(stage, argument / 4, &mut script, honesty));
            }
            4 if argument < 8 => ring.park(),
            4 => {
                let word = script.word();
                let above = ring.stage.newest().saturating_add(1);
                let number = if argument & 2 == 0 { above.saturating_add(word) } else { word };
                let actions = argument / 4 % 2;
                if let Some(number) = Seq::new(number) {
                    ring.publish_as(Some(number), argument & 1 == 0, |stage| {
                        meanwhile(stage, actions, &mut script, honesty);
                    });
                }
            }
            _ => act(&mut ring.stage, choice, &mut script, honesty),
        }
    }
    ring.check_that_claims_end();
}

/// What subscribers write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Honesty {
    /// What they should.
    All,
    /// Anything in their own name.
    OwnWords,
    /// Anything anywhere.
    None,
}

/// What happens while the publisher holds a claim.
fn meanwhile(stage: &mut Stage, actions: u8, script: &mut Script<'_>, honesty: Honesty) {
    for _ in 0..actions {
        let choice = script.byte();
        act(stage, choice, script, honesty);
    }
}

/// Somebody who is not the publisher does something.
fn act(stage: &mut Stage, choice: u8, script: &mut Script<'_>, honesty: Honesty) {
    let argument = choice / 16;
    // Most scripts have few subscribers.
    let number = usize::from(argument) % stage.subscribers.len().max(1);
    match choice % 16 {
        5 => {
            let wants = |bit| argument & bit != 0;
            // A plain one takes no leases: both say something else.
            let (lease, is_special) = (wants(2), wants(8));
            let (plain, no_ack) = (is_special && !lease, is_special && lease);
            stage.join(Join { strict: wants(1), lease, hint: wants(4), plain, no_ack });
        }
        6 => stage.leave(number, Departure::Clean),
        7 => stage.leave(number, Departure::Abrupt),
        8 => stage.next(number),
        9 => stage.get(number, (argument / 4).into()),
        10 => {
            let frames = stage.subscribers.get(number).map_or(0, Subscriber::held);
            stage.release(number, usize::from(script.byte()) % frames.max(1));
        }
        11 => stage.release(number, 0),
        12 => {
            stage
                .park(usize::from(argument / 2) % stage.subscribers.len().max(1), argument.is_multiple_of(2));
        }
        13 => stage.wait(Duration::from_millis(u64::from(script.byte()) * 50)),
        14 => {
            let number = usize::from(argument / 4);
            match argument % 4 {
                0 => stage.process_gone(number),
                1 => stage.next_late(number),
                2 => stage.release_stale(),
                _ => stage.release_late(number, 0),
            }
        }
        15 if honesty == Honesty::OwnWords => {
            stage.scribble_own(number, script.byte(), script.byte() % 16, script.word());
        }
        15 if honesty == Honesty::None => stage.scribble_any(script.u16().into(), script.word()),
        _ => {}
    }
}
