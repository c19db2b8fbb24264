//! A whole start: `cuframes publish`, with a participant in Python and `cuframes subscribe`.

use std::path::Path;

use cuframes_interop::{Process, cuframes};

use crate::python::{Participant, interpreter};

#[tokio::test]
async fn a_publisher_starts_with_python_and_a_subscriber_which_sees_its_first_frame() {
    let Some(python) = interpreter() else { return };
    let program = cuframes();
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    std::fs::create_dir(&run_dir).unwrap();
    let key = format!("interop-{}", std::process::id());
    let address = format!("ipc://{}", dir.path().join("start").display());
    let run = |line: &str| {
        let line = line.replace("KEY", &key).replace("ADDRESS", &address);
        let place = ["--run-dir", run_dir.to_str().unwrap()];
        Process::start(&program, &place.into_iter().chain(line.split(' ')).collect::<Vec<_>>())
    };
    // It publishes 20 frames into a ring of 4, so that nobody who is late could see the first.
    let publisher = run(
        "publish KEY --pattern seq --size 64x48 --format gray8 --frames 20 --fps 0 --ring 4 --policy strict-wait \
         --barrier ADDRESS --expect 2 --barrier-timeout 60",
    );
    let subscriber = run(
        "subscribe KEY --mode strict --check-seq --json --barrier ADDRESS --index 1 --barrier-timeout 60 --timeout 60",
    );
    let mut participant = Participant::start(python, &address, 0, [0, 2], true);
    let (init, _) = participant.joined().await;
    assert_eq!(init.parallel_config.get("stream").unwrap().as_str(), Some(key.as_str()));
    assert_eq!(init.parallel_config.get("width").unwrap().as_int(), Some(64));
    let socket = init.addresses.inputs[1].strip_prefix("ipc://").unwrap();
    assert!(Path::new(socket).starts_with(&run_dir));

    assert_eq!(participant.process.says("GO").await, "");
    let said = subscriber.end().await.concat();
    assert!(said.contains("\"first_seq\":1,") && said.contains("\"frames\":20,"), "{said}");
    publisher.end().await;
}
