//! Sessions of a worker: where they stand, and one task of each at a time.

use cuframes_bridge::layers::{Outcome, WorkerEvent};
use cuframes_bridge::wire::{EMPTY_HASH, WorkFlags, token_hash};

use crate::layers_peers::{all, alone, messages, said};
use crate::layers_working::{answered, result};
use crate::layers_world::{Net, Who};

#[test]
fn a_session_goes_on_where_it_stands() {
    let (mut net, caller) = alone(|_| {});
    let go = |net: &mut Net, request, prefix: &[u32], tokens: &[u32], reset: bool| {
        let mut work = all(7, request, prefix, tokens);
        if reset {
            work.flags = work.flags.union(WorkFlags::RESET);
        }
        let now = net.tell(caller, &said(work));
        match net.tasks(0).pop() {
            Some(task) => {
                assert_eq!(now, []);
                net.compute(0, &task);
                let result = result(messages(&net.heard(caller)));
                assert_eq!((result.request, result.status), (request, 0));
                Ok(task.is_new)
            }
            None => Err(result(now).error().unwrap()),
        }
    };
    let mismatch = || Err("worker KV prefix hash mismatch".into());
    assert_eq!(go(&mut net, 1, &[1], &[2], false), mismatch());
    assert_eq!(net.workers[0].machine.sessions(), 0);
    assert_eq!(go(&mut net, 2, &[], &[1, 2], false), Ok(true));
    assert_eq!(go(&mut net, 3, &[1, 2], &[3], false), Ok(false));
    assert_eq!(go(&mut net, 4, &[1, 2], &[3], false), mismatch());
    assert_eq!(go(&mut net, 5, &[], &[1], false), mismatch());
    assert_eq!(go(&mut net, 6, &[], &[4], true), Ok(true));
    assert_eq!(go(&mut net, 7, &[4], &[5], false), Ok(false));
}

#[test]
fn a_session_that_failed_begins_again() {
    let (mut net, caller) = alone(|_| {});
    net.tell(caller, &said(all(7, 1, &[], &[1])));
    let task = net.task(0);
    net.finish(0, task.id, Outcome::Failed("out of memory".into()));
    let failed = result(messages(&net.heard(caller)));
    assert_eq!((failed.request, failed.error().unwrap()), (1, "out of memory".into()));
    let mismatch = result(net.tell(caller, &said(all(7, 2, &[1], &[2]))));
    assert_eq!(mismatch.error().unwrap(), "worker KV prefix hash mismatch");
    net.tell(caller, &said(all(7, 3, &[], &[1])));
    assert!(net.task(0).is_new);
}

#[test]
fn requests_of_one_session_are_computed_one_after_the_other() {
    let (mut net, caller) = alone(|_| {});
    net.tell(caller, &said(all(7, 1, &[], &[1])));
    net.tell(caller, &said(all(7, 2, &[1], &[2])));
    net.tell(caller, &said(all(7, 3, &[1], &[3])));
    let first = net.task(0);
    // Also those of another connection.
    let other = net.call(Who::Worker(0));
    net.workers[0].events.clear();
    net.tell(other, &said(all(7, 4, &[1, 2], &[4])));
    assert_eq!(net.tasks(0), []);
    net.compute(0, &first);
    let second = net.task(0);
    assert_eq!((second.request, second.is_new), (2, false));
    net.compute(0, &second);
    // The third one found another session than it expected; who of the two comes first is of no matter.
    let third = net.task(0);
    assert_eq!(third.request, 4);
    net.compute(0, &third);
    let heard = messages(&net.heard(caller));
    assert_eq!(answered(&heard), [1, 2, 3]);
    assert_eq!(result(heard[2..].to_vec()).error().unwrap(), "worker KV prefix hash mismatch");
    assert_eq!(answered(&messages(&net.heard(other))), [4]);
}

#[test]
fn the_session_that_was_not_used_for_the_longest_time_makes_room() {
    let (mut net, caller) = alone(|config| config.max_sessions = 2);
    for session in [1, 2] {
        net.tell(caller, &said(all(session, session, &[], &[5])));
        let task = net.task(0);
        net.compute(0, &task);
    }
    net.tell(caller, &said(all(3, 3, &[], &[5])));
    let events = net.worker_events(0);
    assert!(matches!(events[..], [WorkerEvent::Freed { session: 1 }, WorkerEvent::Work(_)]), "{events:?}");
    assert_eq!(net.workers[0].machine.sessions(), 2);
    assert_eq!(token_hash(&[]), EMPTY_HASH);
}
