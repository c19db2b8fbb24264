//! [`Relay`]: a bad road between two TCP sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cuframes_mio::net::Endpoint;
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};

/// Carries one connection after the other, in pieces, and cuts them anywhere.
pub(crate) struct Relay {
    pub(crate) endpoint: Endpoint,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    is_held: AtomicBool,
    cuts: AtomicUsize,
}

/// How bad it is.
#[derive(Clone)]
pub(crate) struct Road {
    pub(crate) random: fastrand::Rng,
    /// A connection is cut within so many bytes.
    pub(crate) cut_within: usize,
    /// Bytes of a piece, at most.
    pub(crate) piece: usize,
}

impl Relay {
    pub(crate) fn new(to: &Endpoint, road: Road) -> Self {
        let Endpoint::Tcp(to) = *to else { panic!("{to:?} is not over TCP") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // What is held back is held in front of us.
        set_socket_recv_buffer_size(&listener, 64 << 10).unwrap();
        listener.set_nonblocking(true).unwrap();
        let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let own = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let mut road = road;
            while !own.is_over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((near, _)) => {
                        // If nobody is there, the one that has come is closed.
                        if let Ok(far) = TcpStream::connect(to) {
                            own.carry(&mut road, &near, &far);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        Self { endpoint, state, thread: Some(thread) }
    }

    /// Nothing passes any more, or again.
    pub(crate) fn hold(&self, is_held: bool) {
        self.state.is_held.store(is_held, Ordering::Relaxed);
    }

    /// How many connections were cut.
    pub(crate) fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::Relaxed)
    }
}

impl State {
    fn carry(&self, road: &mut Road, near: &TcpStream, far: &TcpStream) {
        let mut left = road.random.usize(1..=road.cut_within);
        let mut pieces = [Vec::new(), Vec::new()];
        for socket in [near, far] {
            socket.set_nonblocking(true).unwrap();
            socket.set_nodelay(true).unwrap();
        }
        while !self.is_over.load(Ordering::Relaxed) {
            let mut has_moved = false;
            for ((mut from, mut to), piece) in [(near, far), (far, near)].into_iter().zip(&mut pieces) {
                if self.is_held.load(Ordering::Relaxed) {
                    continue;
                }
                if piece.is_empty() {
                    piece.resize(road.random.usize(1..=road.piece), 0);
                    let read = from.read(piece);
                    piece.truncate(*read.as_ref().unwrap_or(&0));
                    match read {
                        Ok(0) => return,
                        Err(error) if error.kind() != ErrorKind::WouldBlock => return,
                        _ => {}
                    }
                }
                let len = piece.len().min(left);
                let n = match to.write(&piece[..len]) {
                    Ok(n) => n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                    Err(_) => return,
                };
                has_moved |= n > 0;
                piece.drain(..n);
                left -= n;
                if left == 0 {
                    self.cuts.fetch_add(1, Ordering::Relaxed);
                    // Half of the time what is on the way is lost, too.
                    for socket in [near, far].into_iter().filter(|_| road.random.bool()) {
                        set_socket_linger(socket, Some(Duration::ZERO)).unwrap();
                    }
                    return;
                }
            }
            if !has_moved || road.random.u8(..) < 8 {
                thread::sleep(PAUSE);
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const PAUSE: Duration = Duration::from_micros(200);
