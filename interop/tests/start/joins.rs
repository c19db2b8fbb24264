//! Our participants at the frontend of the original.

use std::sync::mpsc;
use std::time::Duration;

use cuframes_barrier::message::Registration;
use cuframes_interop::{LIMIT, chance, thread, within};
use cuframes_mio::barrier::Join;
use tokio::sync::oneshot;

use crate::frontends::Frontend;

/// Lets `count` of ours join in any order, some of them only when others have registered. The frontend must tell of each what
/// it registered with.
async fn joins(mut frontend: Frontend, rng: &mut fastrand::Rng, first: u16, count: u16) {
    let mut order: Vec<u16> = (0..count).map(|rank| first + rank).collect();
    rng.shuffle(&mut order);
    eprintln!("in the order {order:?}");
    let mut ends = Vec::new();
    let mut registered: Vec<(u16, oneshot::Receiver<bool>)> = Vec::new();
    for index in order {
        if rng.bool() {
            for (index, registered) in registered.drain(..) {
                let confirmed = within("a registration", registered).await.unwrap();
                assert!(!confirmed, "the original does not say that all are there, but {index} was told");
            }
        }
        let (done, stays) = mpsc::channel::<()>();
        let (said, hears) = oneshot::channel();
        let endpoint = frontend.address.parse().unwrap();
        let participant = move || {
            let builder = Join::builder(endpoint, index).timeout(LIMIT).of(count, first);
            let mut join = builder.name(format!("participant {index}")).frames(index).start().unwrap();
            let init = join.wait_init().unwrap();
            assert_eq!(init.addresses.inputs.len(), 1);
            join.ready(&init).unwrap();
            said.send(join.wait().unwrap()).unwrap();
            // It stays until the start is over.
            assert!(stays.recv().is_err());
        };
        ends.push((done, tokio::spawn(thread("a participant of ours", participant))));
        registered.push((index, hears));
    }
    let expected = (0..count).map(|rank| {
        let index = first + rank;
        let mut registration = Registration::new(rank, count);
        registration.instance_id = format!("participant {index}");
        registration.max_num_seqs = index.into();
        (index, registration.encode())
    });
    assert_eq!(frontend.end().await, Ok(expected.collect::<Vec<_>>()));
    for (done, end) in ends {
        drop(done);
        end.await.unwrap();
    }
}

#[tokio::test]
async fn one_two_and_eight_of_ours_start_with_the_original_in_any_order() {
    let mut rng = chance();
    for count in [1, 2, 8, 8, 8] {
        let first = *rng.choice(&[0, 1, 258, u16::MAX - 7]).unwrap();
        let frontend = Frontend::original(first, count, LIMIT).await;
        joins(frontend, &mut rng, first, count).await;
    }
}

#[tokio::test]
async fn ours_start_with_the_original_over_unix_sockets() {
    let mut rng = chance();
    for count in [1, 2, 8] {
        let dir = tempfile::tempdir().unwrap();
        let frontend = Frontend::original_in(dir.path(), 0, count, LIMIT).await;
        joins(frontend, &mut rng, 0, count).await;
    }
}

#[tokio::test]
async fn one_of_ours_that_is_refused_by_the_original_hears_that_it_is_gone() {
    let mut frontend = Frontend::original(0, 2, LIMIT).await;
    let endpoint = frontend.address.parse().unwrap();
    let stranger = move || {
        let mut join = Join::builder(endpoint, 7).timeout(LIMIT).of(2, 0).start().unwrap();
        join.wait_init().unwrap_err().to_string()
    };
    let heard = thread("a participant of ours", stranger).await;
    assert!(frontend.end().await.unwrap_err().contains("unexpected engine 7"));
    assert!(heard.contains("closed the connection"), "{heard}");
}

#[tokio::test]
async fn one_of_ours_that_waits_for_others_at_the_original_is_in_though_they_do_not_come() {
    // A machine that is slow may need one of the longer deadlines.
    let mut told = (false, String::new());
    for seconds in [2, 8, 32] {
        let mut frontend = Frontend::original(0, 2, Duration::from_secs(seconds)).await;
        let endpoint = frontend.address.parse().unwrap();
        let lonely = move || {
            let mut join = Join::builder(endpoint, 1).timeout(LIMIT).of(2, 0).start().unwrap();
            let init = join.wait_init().ok()?;
            join.ready(&init).ok()?;
            join.wait().ok()
        };
        let confirmed = thread("a participant of ours", lonely).await;
        let error = frontend.end().await.unwrap_err();
        let is_in_time =
            error == format!("handshake timed out after {seconds}s waiting for READY from engines [0]");
        told = (confirmed == Some(false) && is_in_time, error);
        if told.0 {
            break;
        }
    }
    assert!(told.0, "{}", told.1);
}
