//! [`Line`]: one connection, what it is for, and whether its peer keeps it waiting.

use alloc::vec::Vec;
use core::time::Duration;

use cuframes_core::Instant;
use cuframes_core::streams::{ConnId, Links};

use super::Fault;
use super::peer::Peer;
use super::stall::Stall;

/// A connection.
#[derive(Debug)]
pub(super) struct Line<R> {
    stall: Stall,
    pub(super) role: R,
}

/// What waits for its peer.
pub(super) trait Due {
    /// By when the peer has to do something, and what it means if it does not.
    fn due(&self) -> Option<(Instant, Fault)>;

    /// Whether the connection is there, and not only asked for.
    fn is_connected(&self) -> bool;
}

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Now,
    WhenSent,
    /// It has ended.
    Gone,
}

impl<R> Line<R> {
    pub(super) fn new(role: R) -> Self {
        Self { stall: Stall::default(), role }
    }

    /// The peer took something.
    pub(super) const fn progressed(&mut self) {
        self.stall.progressed();
    }
}

/// The connections whose peers are late, and when to look again at the others. Who takes nothing of what is sent for
/// `send_timeout` is late, too.
pub(super) fn late<R: Due>(
    links: &mut Links<Peer, Line<R>>,
    now: Instant,
    send_timeout: Duration,
) -> (Vec<(ConnId, Fault)>, Option<Instant>) {
    let (mut late, mut next) = (Vec::new(), None);
    for conn in links.iter().map(|(conn, _)| conn).collect::<Vec<_>>() {
        let Some((peer, line)) = links.get_mut(conn) else { continue };
        match line.role.due() {
            Some((at, fault)) if at <= now => late.push((conn, fault)),
            // What can't be sent before it is connected does not stall.
            _ if line.stall.is_over(now, peer.waiting() > 0 && line.role.is_connected(), send_timeout) => {
                late.push((conn, Fault::Send));
            }
            due => next = [next, due.map(|(at, _)| at), line.stall.until()].into_iter().flatten().min(),
        }
    }
    (late, next)
}
