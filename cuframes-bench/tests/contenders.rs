//! A program that measures systems of its own, some of which fail. It is started again for each process of a measurement, so
//! it has a `main` of its own in place of a test harness.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failure ends the test, which says what it has tested"
)]

use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, fs, thread};

use cuframes_bench::system::{Failure, Setup, System, Wait};
use cuframes_bench::{Contender, Job, Options, run, run_if_asked};

/// Its writer can't be opened.
#[derive(Debug)]
struct Closed;

/// Its readers panic at the first frame.
#[derive(Debug)]
struct Panicky;

/// Its writer is never open.
#[derive(Debug)]
struct Stuck;

macro_rules! without_a_writer {
    ($system:ident, $name:literal, $open:expr) => {
        impl System for $system {
            const NAME: &'static str = $name;

            type Writer = ();
            type Reader = ();

            fn writer(_setup: &Setup) -> Result<(), Failure> {
                $open
            }

            fn wait_for_readers(_writer: &mut (), _setup: &Setup, _timeout: Duration) -> Result<(), Failure> {
                Ok(())
            }

            fn write(_writer: &mut (), _fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
                Ok(())
            }

            fn reader(_setup: &Setup, _index: usize) -> Result<(), Failure> {
                Ok(())
            }

            fn read<T>(_: &mut (), _: Wait, _: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Failure> {
                Ok(None)
            }
        }
    };
}

without_a_writer!(Closed, "closed", Err("it is closed".into()));
without_a_writer!(Stuck, "stuck", {
    thread::sleep(Duration::MAX);
    Ok(())
});

impl System for Panicky {
    const NAME: &'static str = "panicky";

    type Writer = UnixListener;
    type Reader = UnixStream;

    fn writer(setup: &Setup) -> Result<UnixListener, Failure> {
        // What it leaves behind is to be deleted.
        let name = setup.dir.file_name().expect("a name").to_string_lossy();
        fs::write(format!("/dev/shm/test-{name}"), "left behind")?;
        Ok(UnixListener::bind(setup.dir.join(&setup.stream))?)
    }

    fn wait_for_readers(writer: &mut UnixListener, setup: &Setup, _: Duration) -> Result<(), Failure> {
        for _ in 0..setup.readers {
            writer.accept()?;
        }
        Ok(())
    }

    fn write(_writer: &mut UnixListener, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        fill(&mut [0; 64]);
        Ok(())
    }

    fn reader(setup: &Setup, _index: usize) -> Result<UnixStream, Failure> {
        Ok(UnixStream::connect(setup.dir.join(&setup.stream))?)
    }

    fn read<T>(_: &mut UnixStream, _: Wait, _: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Failure> {
        panic!("no frame is good enough")
    }
}

fn main() -> ExitCode {
    let [floor, cuframes] = [Contender::floor(), Contender::cuframes()];
    let contenders =
        [floor, Contender::of::<Closed>(), Contender::of::<Panicky>(), Contender::of::<Stuck>(), cuframes];
    if let Some(code) = run_if_asked(&contenders) {
        return code;
    }
    if env::args().nth(1).as_deref() == Some("measure") {
        contenders_that_fail_are_reported_and_the_others_are_measured(&contenders);
        println!("test contenders_that_fail_are_reported_and_the_others_are_measured ... ok");
        return ExitCode::SUCCESS;
    }
    // With a directory for temporary files of its own.
    let dir = tempfile::Builder::new().prefix("cuframes-test-").tempdir().unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    let status = command.arg("measure").env("TMPDIR", dir.path()).status().unwrap();
    assert!(status.success(), "{status}");
    ExitCode::SUCCESS
}

fn contenders_that_fail_are_reported_and_the_others_are_measured(contenders: &[Contender]) {
    let mut options = Options::default();
    options.rounds = 2;
    options.jobs = vec![Job::Wake];
    options.quick = true;
    options.cell_timeout = Duration::from_secs(10);
    let report = run(contenders, &options).unwrap();
    assert!(!report.is_complete());
    let reasons = |system: &str| {
        let lapses = report.failures.iter().filter(|lapse| lapse.system == system);
        lapses.map(|lapse| (lapse.round, lapse.reason.clone())).collect::<Vec<_>>()
    };
    let twice = |reason: &str| [(1, reason.to_string()), (2, reason.to_string())];
    assert_eq!(reasons("closed"), twice("it is closed"));
    assert_eq!(reasons("panicky"), twice("reader 0 has ended without a word"));
    assert_eq!(reasons("stuck"), twice("no result in 10s"));
    assert_eq!(report.failures.len(), 6, "{report}");
    for row in &report.rows {
        let figures = row.systems.iter().map(|entry| {
            let (figure, ratio) = (entry.figure.is_some(), entry.ratio.is_some());
            (&*entry.system, figure, ratio)
        });
        let expected = [
            ("floor", true, false),
            ("closed", false, false),
            ("panicky", false, false),
            ("stuck", false, false),
            ("cuframes", true, true),
        ];
        assert_eq!(figures.collect::<Vec<_>>(), expected, "{row:?}");
    }
    let names = |dir: &str| {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(env::temp_dir().to_str().unwrap()), [""; 0]);
    assert!(!names("/dev/shm").iter().any(|name| name.starts_with("test-b")));
}
