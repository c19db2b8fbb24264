//! [`Terminal`]: the terminal while a picture is on it, and what it was before.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, panic};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{
    DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{cursor, execute};

use crate::error::{Failure, failed};
use crate::keys;

/// Standard output on a screen of its own, without a cursor, and keys that come one by one. Drop puts everything back,
/// and so does a panic before it says anything.
#[derive(Debug)]
pub(crate) struct Terminal(());

impl Terminal {
    pub(crate) fn enter() -> Result<Self, Failure> {
        let fail = |error| failed!("can't use the terminal: {error}; run it in another one");
        enable_raw_mode().map_err(fail)?;
        // From here on it is put back.
        IS_OURS.store(true, Ordering::Relaxed);
        let terminal = Self(());
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide, DisableLineWrap).map_err(fail)?;
        Ok(terminal)
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (u32, u32) {
        match size() {
            Ok((columns, rows)) if columns > 0 && rows > 0 => (columns.into(), rows.into()),
            // One that does not know has the size of the oldest.
            _ => (80, 24),
        }
    }

    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
            .map_err(|error| failed!("can't write to the terminal: {error}; is it still there?"))
    }

    /// Whether a key was pressed that means the end.
    pub(crate) fn has_end_key(&self) -> Result<bool, Failure> {
        let is_end = || -> io::Result<bool> {
            while let Some(event) = keys::next(Duration::ZERO)? {
                if matches!(event, Event::Key(key) if is_end(&key)) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        is_end().map_err(|error| failed!("can't read keys from the terminal: {error}; is it still there?"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

/// Whether a picture can be shown at all.
pub(crate) fn check() -> Result<(), Failure> {
    usable("view", "use cuframes snapshot, which writes a picture to a file")
}

/// Whether a terminal is there that can be drawn on, and whose keys can be read.
pub(crate) fn usable(command: &str, instead: &str) -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(failed!("{command} needs a terminal to draw on and to read keys from; {instead}"));
    }
    if env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return Err(failed!("{command} can't draw on this terminal, which is one of TERM=dumb; {instead}"));
    }
    Ok(())
}

/// Puts everything back, once: a second time would move the cursor. Nobody can be told if it fails.
fn leave() {
    if !IS_OURS.swap(false, Ordering::Relaxed) {
        return;
    }
    restore_mode();
    let _ = execute!(io::stdout(), EnableLineWrap, cursor::Show, LeaveAlternateScreen);
}

/// Puts back what can be put back without writing, which may have to wait.
pub(crate) fn restore_mode() {
    let _ = disable_raw_mode();
}

fn is_end(key: &KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release
        && match key.code {
            KeyCode::Esc => true,
            KeyCode::Char('q' | 'Q') => !is_control,
            KeyCode::Char('c') => is_control,
            _ => false,
        }
}

/// Whether there is something to put back.
static IS_OURS: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_mean_the_end_and_no_other_key_does() {
        let key = |code, modifiers| is_end(&KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(key(KeyCode::Char('Q'), KeyModifiers::SHIFT));
        assert!(key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!key(KeyCode::Char('q'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Enter, KeyModifiers::NONE));
    }
}
