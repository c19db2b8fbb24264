//! Machines without a driver, or with one that is too old.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use cuframes_core::error::ErrorCode;
use cuframes_core::gpu::{Call, GpuError as _};
use cuframes_cuda::{Cause, Cuda, probe};

use crate::double::{finish, this_test};

/// Runs a test of this file once more, in a process in which every name by which a driver is looked for leads to `library`.
fn with_library(test: &str, make: impl Fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let names = ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates);
    for name in names.collect::<BTreeSet<_>>() {
        make(&dir.path().join(name));
    }
    let mut command = this_test(test);
    command.env("LD_LIBRARY_PATH", dir.path()).env(CHILD, "1");
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_machine_without_a_driver_gets_one_clear_line() {
    if std::env::var_os(CHILD).is_none() {
        // What is no library is as good as none, and hides one that the machine may have.
        return with_library("missing::a_machine_without_a_driver_gets_one_clear_line", |path| {
            fs::File::create(path).unwrap().write_all(b"no library").unwrap();
        });
    }
    for _ in 0..2 {
        let error = Cuda::open(0).unwrap_err();
        assert_eq!((error.call(), error.code(), error.native()), (Call::Open, ErrorCode::UNSUPPORTED, None));
        assert_eq!(error.cause(), &Cause::NoDriver);
        let text = error.to_string();
        assert!(
            text.contains("no CUDA driver") && text.contains("libcuda.so") && !text.contains('\n'),
            "{text}"
        );
    }
    let found = probe::probe(0);
    assert_eq!((found.driver, found.devices, &found.device), (None, 0, &None));
    assert_eq!(found.fault.unwrap().cause(), &Cause::NoDriver);
}

#[test]
fn a_driver_that_lacks_a_function_is_too_old() {
    if std::env::var_os(CHILD).is_none() {
        // Any library that is not one of CUDA lacks them all.
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps.split_whitespace().find(|word| word.contains("/libgcc_s.so")).unwrap();
        return with_library("missing::a_driver_that_lacks_a_function_is_too_old", |path| {
            symlink(library, path).unwrap();
        });
    }
    let error = Cuda::open(0).unwrap_err();
    assert_eq!((error.call(), error.code()), (Call::Open, ErrorCode::UNSUPPORTED));
    assert_eq!(error.cause(), &Cause::OldDriver { function: "cuInit" });
    assert!(error.to_string().contains("too old: it has no cuInit"), "{error}");
}

/// Says that a process is the one with the other library.
const CHILD: &str = "CUFRAMES_TEST_LIBRARY";
