//! [`Host`]: what looks like a host of its own, with its own network, `/dev/shm` and `/run`; [`Process`]: a program on one.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process in namespaces of its own, which hold as long as it lives.
pub(crate) struct Host {
    keeper: Child,
}

/// Two hosts and what is between them.
pub(crate) struct Pair {
    pub(crate) near: Host,
    pub(crate) far: Host,
    _relay: Option<Process>,
}

/// Where the far host is.
pub(crate) const FAR: &str = "10.231.7.2:7447";

impl Host {
    fn new() -> Result<Self, String> {
        let setup = "mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && ip link set lo up && echo ready && exec sleep 100000";
        let mut keeper = Command::new("unshare")
            .args(["--net", "--mount", "--kill-child", "--", "sh", "-c", setup])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        BufReader::new(keeper.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let host = Self { keeper };
        if line == "ready\n" {
            Ok(host)
        } else {
            Err("not permitted to make namespaces, or no iproute2".into())
        }
    }

    fn pid(&self) -> String {
        self.keeper.id().to_string()
    }

    /// A command that runs here.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid(), "--net", "--mount", "--"]).arg(program.as_ref());
        command.env_remove("CUFRAMES_RUN_DIR").env_remove("XDG_RUNTIME_DIR");
        command
    }

    /// Runs a command of the system to its end.
    pub(crate) fn sh(&self, script: &str) -> Result<(), String> {
        let output =
            self.command("sh").args(["-c", script]).output().map_err(|error| format!("nsenter: {error}"))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
    }

    /// Starts `cuframes` with these words.
    pub(crate) fn start(&self, words: &str) -> Process {
        let mut command = self.command(env!("CARGO_BIN_EXE_cuframes"));
        Process::start(command.args(words.split(' ')), words)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

impl Pair {
    /// Two hosts with a cable between them.
    pub(crate) fn new() -> Result<Self, String> {
        let (near, far) = (Host::new()?, Host::new()?);
        let (a, b) = (format!("cfa{}", near.pid()), format!("cfb{}", near.pid()));
        for words in [
            format!("link add {a} type veth peer name {b}"),
            format!("link set {a} netns {} name cable", near.pid()),
            format!("link set {b} netns {} name cable", far.pid()),
        ] {
            let status = Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(format!("ip {words} is not possible"));
            }
        }
        let pair = Self { near, far, _relay: None };
        pair.number()?;
        Ok(pair)
    }

    /// Two hosts with a link between them that loses a tenth of its packets, and takes 50 ms one way.
    pub(crate) fn lossy() -> Result<Self, String> {
        let mut pair = Self::new()?;
        let netem = "tc qdisc add dev cable root netem loss 10% delay 50ms";
        if pair.near.sh(netem).and_then(|()| pair.far.sh(netem)).is_ok() {
            println!("the link is `{netem}` at both ends");
            return Ok(pair);
        }
        println!("there is no tc netem here: a relay between two tun devices loses and delays packets");
        for host in [&pair.near, &pair.far] {
            host.sh("ip link del cable 2>/dev/null; true")?;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/two_hosts/lossy.py");
        let mut relay = Command::new("python3");
        relay.arg(script).args([pair.near.pid(), pair.far.pid(), "0.1".into(), "0.05".into()]);
        let mut relay = Process::try_start(&mut relay, "lossy.py")?;
        if relay.line().as_deref() != Some("ready") {
            return Err("no tun devices, or no python3".into());
        }
        pair._relay = Some(relay);
        pair.number()?;
        Ok(pair)
    }

    fn number(&self) -> Result<(), String> {
        let peer = |peer| if peer == 1 { 2 } else { 1 };
        for (host, number) in [(&self.near, 1), (&self.far, 2)] {
            host.sh(&format!(
                "ip addr add 10.231.7.{number} peer 10.231.7.{} dev cable && ip link set cable up",
                peer(number)
            ))?;
        }
        Ok(())
    }
}

/// A program that runs. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    what: String,
}

impl Process {
    fn try_start(command: &mut Command, what: &str) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{what}: {error}"))?;
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Ok(Self { child, stdout, what: what.into() })
    }

    fn start(command: &mut Command, what: &str) -> Self {
        Self::try_start(command, what).unwrap()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        Some(line.trim_end().to_string()).filter(|line| !line.is_empty())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits until it ends, in order. Answers what it has printed.
    pub(crate) fn end(mut self) -> String {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}: {status}: {text}", self.what);
        text
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
