//! What is typed on the terminal.

use std::io;
use std::time::Duration;

use crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What comes from the terminal next: a key, or another size. `None` if nothing does for `timeout`, or a signal came.
///
/// # Errors
/// The terminal is gone: crossterm would look for more of its input for ever.
pub(crate) fn next(timeout: Duration) -> io::Result<Option<Event>> {
    // What it has read already is not in the terminal any more.
    for pause in [Duration::ZERO, timeout] {
        wait(pause)?;
        if event::poll(Duration::ZERO)? {
            return event::read().map(Some);
        }
    }
    Ok(None)
}

/// Waits for input, at most for `timeout`.
fn wait(timeout: Duration) -> io::Result<()> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let [stdin] = polled;
    if stdin.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is gone"));
    }
    Ok(())
}
