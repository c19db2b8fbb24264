//! The program `cuframes` on each side, with theirs on the other.

use std::sync::{Arc, Mutex};

use cuframes_dispatch::context;
use cuframes_interop::{Process, cuframes};
use serde_json::{Value, json};

use crate::theirs::{Theirs, counts, interpreter, path};

#[tokio::test]
async fn cuframes_dispatch_starts_workers_of_theirs_which_do_its_blocks() {
    let Some(python) = interpreter() else { return };
    let program = cuframes();
    let script = path("daisy_worker.py");
    let line = "dispatch --grid 0,-8:40x326 --block 1x16 --margin 0x3 --fit shrink --workers 3 --json --";
    for (plan, done, failed, retried) in [("good", 800, 0, 0), ("good,good,good,raise", 600, 200, 400)] {
        let worker = [python.to_str().unwrap(), &script, "--by-id", "--plan", plan, "--quiet"];
        let arguments: Vec<_> = line.split(' ').chain(worker).collect();
        let (said, is_good) = Process::start(&program, &arguments).ends().await;
        let report: Value = serde_json::from_str(said.last().unwrap()).unwrap();
        let told = ["blocks", "done", "failed", "given_up", "retried", "restarts"].map(|name| &report[name]);
        assert_eq!(
            told.map(|number| number.as_u64().unwrap()),
            [800, done, failed, 0, retried, 0],
            "{said:?}"
        );
        assert_eq!(is_good, failed == 0);
    }
}

#[tokio::test]
async fn cuframes_work_does_the_blocks_of_their_server_that_starts_it() {
    let Some(python) = interpreter() else { return };
    let program = cuframes();
    for depth in ["1", "4"] {
        let tasks = json!([{
            "task_id": "a task: 100 % = all", "total_roi": [[0], [1000]], "read_roi": [[0], [5]],
            "write_roi": [[0], [5]], "read_write_conflict": false, "max_workers": 2,
        }]);
        let said = Arc::new(Mutex::new(Vec::new()));
        let states = Theirs::start(python, &tasks).await.staffed(|place| {
            let (program, said) = (program.clone(), said.clone());
            async move {
                let context = place.context.to_string();
                // One that is started last may find that all is over.
                let arguments = ["work", "--depth", depth, "--connect-timeout", "2"];
                let process = Process::start_with(&program, &arguments, &[(context::NAME, &context)]);
                let (lines, _) = process.ends().await;
                said.lock().unwrap().extend(lines);
            }
        });
        assert_eq!(counts(&states.await, "a task: 100 % = all"), [200, 0, 0]);
        assert_eq!(said.lock().unwrap().len(), 200, "depth {depth}");
    }
}
