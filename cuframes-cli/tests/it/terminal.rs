//! A real terminal for the programs that draw on one.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Pid;

use crate::stage::{Stage, wait_until};

/// A terminal with a shell in it.
pub(crate) struct Tmux<'a> {
    stage: &'a Stage,
}

impl<'a> Tmux<'a> {
    /// `None` if tmux is not installed.
    pub(crate) fn start(stage: &'a Stage, columns: u32, rows: u32, colorterm: &str) -> Option<Self> {
        let tmux = Self { stage };
        let size = [columns.to_string(), rows.to_string()];
        let shell = format!(
            "env -i PATH=\"$PATH\" TERM=screen-256color COLORTERM={colorterm} PS1='$ ' CUFRAMES_RUN_DIR={} sh",
            stage.run_dir().display()
        );
        let session = ["-u", "-f", "/dev/null", "new-session", "-d", "-x", &size[0], "-y", &size[1], &shell];
        match tmux.command().args(session).status() {
            Ok(status) => assert!(status.success()),
            Err(error) => {
                eprintln!("skipped: there is no tmux: {error}");
                return None;
            }
        }
        wait_until("the prompt", || tmux.screen().starts_with('$'));
        Some(tmux)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.stage.path("tmux"));
        command
    }

    /// What tmux says to this.
    #[track_caller]
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let output = self.command().args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What is on the screen, without colours.
    pub(crate) fn screen(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    /// The same with them.
    pub(crate) fn colours(&self) -> String {
        self.ask(&["capture-pane", "-p", "-e"])
    }

    pub(crate) fn keys(&self, keys: &str) {
        self.ask(&["send-keys", keys]);
    }

    /// Runs a command of the program, and then tells its exit code.
    pub(crate) fn run(&self, line: &str) {
        self.run_with("", line);
    }

    /// The same with this set in its environment, but not in that of the shell.
    pub(crate) fn run_with(&self, variable: &str, line: &str) {
        let line = line.replace("KEY", &self.stage.key);
        let program = program().display();
        self.ask(&["send-keys", "-l", &format!("clear; {variable} {program} {line}; echo code=$?")]);
        self.keys("Enter");
    }

    /// Waits for the end, and for the shell: the prompt, the cursor and the echo of what is typed.
    #[track_caller]
    pub(crate) fn ended(&self, code: i32, said: &str) {
        wait_until("the end", || self.screen().lines().any(|line| line.starts_with("code=")));
        let screen = self.screen();
        assert!(screen.contains(&format!("code={code}\n")) && screen.contains(said), "{screen}");
        let colours = self.colours();
        assert!(
            !screen.contains(['▀', '█']) && !colours.contains("48;") && !colours.contains("[7m"),
            "{screen}"
        );
        let state = self.ask(&["display-message", "-p", "#{cursor_flag} #{alternate_on} #{wrap_flag}"]);
        assert_eq!(state.trim(), "1 0 1", "the cursor, the other screen, and lines that wrap");
        self.ask(&["send-keys", "-l", "clear; stty -a; echo again$((1 + 1))"]);
        self.keys("Enter");
        wait_until("the shell", || self.screen().lines().any(|line| line == "again2"));
        let screen = self.screen();
        assert!(
            screen.contains(" icanon") && screen.contains(" echo ") && screen.contains("isig"),
            "{screen}"
        );
    }

    /// The process of the program, once it has drawn something.
    pub(crate) fn pid(&self) -> Pid {
        let shell = self.ask(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_cuframes"))
}

/// A program in a terminal that goes away ends, even where SIGHUP is ignored.
pub(crate) fn ends_with_its_terminal(stage: &Stage, line: &str, is_drawn: impl Fn(&Tmux<'_>) -> bool) {
    let Some(tmux) = Tmux::start(stage, 80, 24, "truecolor") else { return };
    tmux.ask(&["send-keys", "-l", "trap '' HUP"]);
    tmux.keys("Enter");
    tmux.run(line);
    wait_until("something on the screen", || is_drawn(&tmux));
    let process = format!("/proc/{}", tmux.pid().as_raw_nonzero());
    drop(tmux);
    wait_until("its end", || !Path::new(&process).exists());
}
