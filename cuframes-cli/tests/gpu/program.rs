//! The program with `--backend`, on a machine with the double and on one without a driver.

use std::process::{Command, Output, Stdio};

use fake_cuda::Installation;
use tempfile::TempDir;

/// A machine, and a run directory.
struct Machine {
    run_dir: TempDir,
    double: Option<(Installation, TempDir)>,
}

impl Machine {
    fn new(has_driver: bool) -> Self {
        let double = has_driver.then(|| {
            let dir = tempfile::tempdir().unwrap();
            (Installation::new(dir.path()).unwrap(), dir)
        });
        Self { run_dir: tempfile::tempdir().unwrap(), double }
    }

    /// A key of this test alone.
    fn key(&self) -> String {
        let name = self.run_dir.path().file_name().unwrap().to_str().unwrap();
        format!("program-{}", name.trim_start_matches('.'))
    }

    fn cuframes(&self, line: &str) -> Command {
        let mut command = without_driver(&self.run_dir, line);
        if let Some((double, _)) = &self.double {
            double.set_up(&mut command);
        }
        command
    }

    fn run(&self, line: &str) -> Output {
        self.cuframes(line).output().unwrap()
    }

    fn check(&self) {
        let (double, _) = self.double.as_ref().unwrap();
        let reports = double.reports().unwrap();
        assert!(!reports.is_empty() && reports.iter().all(fake_cuda::Report::is_clean), "{reports:?}");
    }
}

fn without_driver(run_dir: &TempDir, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuframes"));
    command.args(line.split(' ')).env("CUFRAMES_RUN_DIR", run_dir.path()).env_remove("LD_LIBRARY_PATH");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What it said on standard error, and whether it ended well.
fn said(output: &Output) -> (bool, String) {
    (output.status.success(), String::from_utf8(output.stderr.clone()).unwrap())
}

/// Whether this machine has a driver that a test can't take away.
fn has_real_driver() -> bool {
    let has = cuframes_cuda::Cuda::open(0).is_ok();
    if has {
        println!("SKIPPED: a machine without a GPU: this one has one");
    }
    has
}

#[test]
fn the_doctor_tries_both_ways_to_share_the_memory_of_each_gpu() {
    let machine = Machine::new(true);
    let output = machine.run("doctor");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for part in [
        "driver for CUDA",
        "GPU 0 over descriptors works: --backend cuda-vmm",
        "GPU 0 over IPC handles works: --backend cuda",
    ] {
        let squeezed: Vec<_> = text.split_whitespace().collect();
        assert!(squeezed.join(" ").contains(part), "{part} is not in\n{text}");
    }
    machine.check();
}

#[test]
fn a_demo_runs_in_every_kind_of_memory() {
    let machine = Machine::new(true);
    for (backend, memory) in [
        ("host", "host memory"),
        ("cuda", "cuda memory"),
        ("cuda-vmm", "cuda-vmm memory"),
        ("auto", "cuda-vmm memory"),
    ] {
        let line = format!("demo --backend {backend} --frames 40 --size 64x32 --policy strict-wait");
        let output = machine.run(&line);
        assert!(output.status.success(), "{backend}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(memory), "{backend}: {output:?}");
    }
    machine.check();
}

#[test]
fn a_subscriber_finds_the_frames_wherever_they_are() {
    let machine = Machine::new(true);
    let key = machine.key();
    for backend in ["host", "cuda", "cuda-vmm"] {
        let line = format!(
            "publish {key} --pattern seq --size 64x32 --backend {backend} --wait-for 1 --frames 2000"
        );
        let publisher = machine.cuframes(&format!("{line} --fps 200")).spawn().unwrap();
        let line = format!("subscribe {key} --check-seq --frames 20 --timeout 60");
        let output = machine.run(&line);
        assert!(output.status.success(), "{backend}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("0 torn"), "{backend}: {output:?}");
        stop(publisher);
    }
    machine.check();
}

#[test]
fn whoever_takes_frames_wherever_they_are_is_counted_once_and_loses_none() {
    let machine = Machine::new(true);
    let key = machine.key();
    for backend in ["host", "cuda", "cuda-vmm"] {
        let line =
            format!("publish {key} --pattern seq --size 64x64 --backend {backend} --policy strict-wait -v");
        let publisher =
            machine.cuframes(&format!("{line} --wait-for 1 --fps 0 --frames 50")).spawn().unwrap();
        let output =
            machine.run(&format!("subscribe {key} --mode strict --check-seq --timeout 60 --json -v"));
        let (is_well, text) = said(&output);
        assert!(is_well && !text.contains("WARN") && !text.contains("ERROR"), "{backend}: {text}");
        let json = String::from_utf8(output.stdout).unwrap();
        assert!(json.contains(r#""frames":50,"#), "{backend}: {json}");
        let output = publisher.wait_with_output().unwrap();
        let (is_well, text) = said(&output);
        assert!(
            is_well && !text.contains("WARN") && text.matches("joined").count() == 1,
            "{backend}: {text}"
        );
    }
    machine.check();
}

#[test]
fn frames_of_a_device_are_sent_to_another_host() {
    let machine = Machine::new(true);
    let key = machine.key();
    let link = format!("ipc://{}", machine.run_dir.path().join("link").display());
    for backend in ["cuda", "cuda-vmm"] {
        let start = |line: &str| machine.cuframes(line).spawn().unwrap();
        let far = start(&format!("bridge recv --listen {link} --prefix far- --json"));
        let publisher = start(&format!(
            "publish {key} --pattern seq --size 64x64 --backend {backend} --policy strict-wait --wait-for 1 --patience 60 --fps 100"
        ));
        let sender = start(&format!("bridge send {key} --to {link} --strict --wait 60 --json"));
        let line =
            format!("subscribe far-{key} --backend host --mode strict --check-seq --timeout 60 --frames 50");
        let output = machine.run(&line);
        assert!(
            String::from_utf8_lossy(&output.stdout).contains(" 0 dropped, 0 torn"),
            "{backend}: {output:?}"
        );
        stop(publisher);
        let sent = sender.wait_with_output().unwrap();
        assert!(sent.status.success(), "{backend}: {sent:?}");
        let received = stop(far);
        let [sent, received] = [sent, received]
            .map(|output| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap());
        assert_eq!(sent["arrived"], received["frames"], "{backend}: {sent} {received}");
        assert_eq!((&sent["dropped"], &received["left_out"]), (&0.into(), &0.into()), "{backend}: {sent}");
    }
    machine.check();
}

#[test]
fn a_recording_of_a_device_is_replayed_into_a_device() {
    let machine = Machine::new(true);
    let key = machine.key();
    let file = machine.run_dir.path().join("out.mkv");
    let file = file.display();
    // Rows without padding, which is not recorded.
    let source = "--pattern seq --size 256x4 --frames 30";
    let options = "--fps 0 --policy strict-wait --wait-for 1";
    for backend in ["host", "cuda", "cuda-vmm"] {
        let line = format!("publish {key} {source} --backend {backend} {options}");
        let publisher = machine.cuframes(&line).spawn().unwrap();
        let (is_well, text) = said(&machine.run(&format!("record {key} {file} --force --timeout 60")));
        assert!(is_well, "{backend}: {text}");
        assert!(publisher.wait_with_output().unwrap().status.success());

        let line = format!("replay {file} {key} --backend {backend} {options} --json");
        let player = machine.cuframes(&line).spawn().unwrap();
        let line = format!("subscribe {key} --mode strict --check-seq --timeout 60 --json");
        let output = machine.run(&line);
        let json = String::from_utf8_lossy(&output.stdout);
        assert!(json.contains(r#""frames":30,"#) && json.contains(r#""torn":0,"#), "{backend}: {output:?}");
        let output = player.wait_with_output().unwrap();
        let memory = format!(r#""memory":"{backend}""#);
        assert!(String::from_utf8_lossy(&output.stdout).contains(&memory), "{backend}: {output:?}");
    }
    machine.check();
}

fn stop(process: std::process::Child) -> Output {
    let pid = process.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn a_subscriber_that_goes_on_follows_the_frames_from_one_memory_to_the_other() {
    let machine = Machine::new(true);
    let key = machine.key();
    let publisher = |backend| {
        let line =
            format!("publish {key} --pattern seq --size 64x32 --backend {backend} --wait-for 1 --fps 200");
        machine.cuframes(&line).spawn().unwrap()
    };
    let first = publisher("host");
    let line =
        format!("subscribe {key} --check-seq --reconnect --mode strict --frames 300 --timeout 60 --json");
    let subscriber = machine.cuframes(&line).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    stop(first);
    let second = publisher("cuda-vmm");
    let output = subscriber.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let json = String::from_utf8_lossy(&output.stdout);
    assert!(json.contains(r#""torn":0"#) && json.contains(r#""reconnects":1"#), "{json}");
    let (_, text) = said(&output);
    assert!(
        text.contains("waiting for the next publisher") && text.contains("attached to a publisher again"),
        "{text}"
    );
    stop(second);
}

#[test]
fn a_snapshot_is_the_same_picture_wherever_the_frame_is() {
    let machine = Machine::new(true);
    let key = machine.key();
    let path = machine.run_dir.path().join("out.png");
    let mut pictures = Vec::new();
    for backend in ["host", "cuda", "cuda-vmm"] {
        let line = format!("publish {key} --pattern bars --size 65x33 --backend {backend} --fps 1/1000");
        let publisher = machine.cuframes(&line).spawn().unwrap();
        for options in ["", &format!("--backend {backend}")] {
            let line = format!("snapshot {key} {} --timeout 60 {options}", path.display());
            let output = machine.run(line.trim_end());
            assert!(output.status.success(), "{backend}: {output:?}");
            pictures.push(std::fs::read(&path).unwrap());
        }
        stop(publisher);
    }
    assert_eq!(pictures.len(), 6);
    pictures.dedup();
    assert_eq!(pictures.len(), 1, "they differ");
    machine.check();
}

#[test]
fn auto_says_what_it_picked() {
    let line = |machine: &Machine| {
        format!("publish {} --pattern bars --size 64x32 --backend auto --frames 1", machine.key())
    };
    let machine = Machine::new(true);
    let (is_well, text) = said(&machine.run(&line(&machine)));
    assert!(is_well && text.contains("(test double)") && text.contains("file descriptors"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    if has_real_driver() {
        return;
    }
    let machine = Machine::new(false);
    let (is_well, text) = said(&machine.run(&line(&machine)));
    assert!(is_well && text.contains("frames are in host memory"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn auto_takes_host_memory_where_the_memory_of_the_device_can_not_be_shared() {
    for (name, value) in
        [("FAKE_CUDA_FAIL", "cuMemCreate@*=801,cuIpcGetMemHandle@*=801"), ("FAKE_CUDA_MEMORY", "1048576")]
    {
        let machine = Machine::new(true);
        let line = format!("publish {} --pattern bars --size 64x32 --backend auto --frames 1", machine.key());
        let (is_well, text) = said(&machine.cuframes(&line).env(name, value).output().unwrap());
        assert!(is_well && text.contains("frames are in host memory"), "{name}: {text}");
        assert_eq!(text.lines().count(), 1, "{name}: {text}");
    }
}

#[test]
fn without_a_driver_there_is_one_clear_line() {
    if has_real_driver() {
        return;
    }
    let machine = Machine::new(false);
    for backend in ["cuda", "cuda-vmm"] {
        let line = format!("publish {} --pattern bars --backend {backend}", machine.key());
        let (is_well, text) = said(&machine.run(&line));
        assert!(!is_well && text.contains("can't use GPU 0") && text.contains("libcuda"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    // A subscriber of a stream that needs one.
    let machine = Machine::new(true);
    let key = machine.key();
    let line = format!("publish {key} --pattern seq --size 64x32 --backend cuda-vmm --fps 100");
    let publisher = machine.cuframes(&line).spawn().unwrap();
    for backend in ["auto", "cuda", "host"] {
        let line = format!("subscribe {key} --frames 1 --backend {backend} --timeout 60");
        let (is_well, text) = said(&without_driver(&machine.run_dir, &line).output().unwrap());
        assert!(!is_well && text.contains(&key), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        println!("{text}");
    }
    stop(publisher);
}
