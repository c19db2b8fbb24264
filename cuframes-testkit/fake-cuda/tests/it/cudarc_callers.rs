//! cudarc on this library: the symbols that it looks up are there, and its safe API works on them.

use std::env;
use std::process::Command;

use cudarc::driver::{CudaContext, DriverError};
use fake_cuda::{EntryPoint as E, Installation};

#[test]
fn cudarc_copies_and_waits_and_leaves_nothing_open() {
    // The library must be found when a process starts, so this test is one that starts itself.
    let me = "cudarc_callers::cudarc_copies_and_waits_and_leaves_nothing_open";
    if env::var_os("FAKE_CUDA_DIR").is_some() {
        return use_cudarc().unwrap();
    }
    for attributes in ["115=1", "115=0"] {
        let dir = tempfile::tempdir().unwrap();
        let installation = Installation::new(dir.path()).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", me, "--nocapture"]).env("FAKE_CUDA_ATTRIBUTES", attributes);
        let output = installation.set_up(&mut command).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let reports = installation.reports().unwrap();
        assert_eq!(reports.len(), 1);
        let (open, pools) = (&reports[0].open, attributes == "115=1");
        assert_eq!((open.allocations, open.streams, open.events), (0, 0, 0));
        assert_eq!(reports[0].violations, Vec::<String>::new());
        assert_eq!(reports[0].count(E::cuMemAllocAsync) > 0, pools);
        assert_eq!(reports[0].count(E::cuMemAlloc_v2) > 0, !pools);
        assert!(installation.left_behind().unwrap().is_empty());
    }
}

fn use_cudarc() -> Result<(), DriverError> {
    let context = CudaContext::new(0)?;
    assert_eq!(context.name()?, "fake CUDA device (test double)");
    assert_eq!(context.compute_capability()?, (8, 9));
    let (free, total) = context.mem_get_info()?;
    assert!(free <= total && total == context.total_mem()?);
    let stream = context.new_stream()?;
    let bytes: Vec<u8> = (0..100).collect();
    let first = stream.clone_htod(&bytes)?;
    let second = stream.clone_dtod(&first)?;
    let zeros = stream.alloc_zeros::<u8>(3)?;
    let event = stream.record_event(None)?;
    context.default_stream().wait(&event)?;
    event.synchronize()?;
    assert!(event.is_complete());
    assert_eq!(stream.clone_dtoh(&second)?, bytes);
    assert_eq!(stream.clone_dtoh(&zeros)?, [0; 3]);
    stream.synchronize()
}
