//! The driver of machines over byte streams: what any of them may rely on.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use cuframes_mio::core::Instant;
use cuframes_mio::core::streams::{Action, ConnId, Machine};
use cuframes_mio::net::{Driver, Endpoint, Listeners, NetError};
use cuframes_mio::{Pollable, now};

use crate::common::until;

/// Sends what it receives back, in the order of arrival, and gives up on who says `x`.
#[derive(Default)]
struct Echo {
    next: u64,
    out: BTreeMap<ConnId, Vec<u8>>,
    actions: VecDeque<Action>,
    events: VecDeque<String>,
    received: usize,
}

impl Echo {
    fn open(&mut self) -> ConnId {
        self.next += 1;
        let conn = ConnId::new(self.next);
        self.out.insert(conn, Vec::new());
        conn
    }

    fn connect(&mut self, address: &str, first: &[u8]) -> ConnId {
        let conn = self.open();
        self.out.insert(conn, first.into());
        self.actions.push_back(Action::Connect { conn, address: address.into(), delay: Duration::ZERO });
        conn
    }
}

impl Machine for Echo {
    type Event = String;

    fn handle_accepted(&mut self, _: Instant, listener: usize) -> Option<ConnId> {
        self.events.push_back(format!("accepted on {listener}"));
        Some(self.open())
    }

    fn handle_connected(&mut self, _: Instant, conn: ConnId) {
        self.events.push_back("connected".into());
        self.actions.push_back(Action::Transmit(conn));
    }

    fn handle_bytes(&mut self, _: Instant, conn: ConnId, bytes: &[u8]) {
        self.received += bytes.len();
        if bytes == b"x" {
            self.out.remove(&conn);
            return self.actions.push_back(Action::Close(conn));
        }
        self.out.entry(conn).or_default().extend(bytes);
        self.actions.push_back(Action::Transmit(conn));
    }

    fn handle_eof(&mut self, _: Instant, conn: ConnId) {
        self.out.remove(&conn);
        self.events.push_back("eof".into());
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn poll_transmit(&self, conn: ConnId) -> Option<&[u8]> {
        self.out.get(&conn).map(Vec::as_slice).filter(|bytes| !bytes.is_empty())
    }

    fn transmitted(&mut self, conn: ConnId, n: usize) {
        self.out.entry(conn).and_modify(|bytes| drop(bytes.drain(..n)));
    }

    fn poll_event(&mut self) -> Option<String> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A driver of an [`Echo`] that listens on a free port, and where.
fn echo() -> (Pollable<Driver<Echo>>, std::net::SocketAddr) {
    let listeners = Listeners::new([&"tcp://127.0.0.1:0".parse().unwrap()]).unwrap();
    let Some(Endpoint::Tcp(address)) = listeners.endpoints().next().cloned() else { panic!("no address") };
    (Pollable::new(Driver::new(Echo::default(), listeners)).unwrap(), address)
}

fn turn(driver: &mut Pollable<Driver<Echo>>) {
    let _ = driver.wait(Some(Duration::from_millis(10))).unwrap();
}

#[test]
fn megabytes_come_back_through_a_peer_that_reads_late() {
    let (mut driver, address) = echo();
    let sent: Vec<u8> = (0..8_u32 << 20).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[2]).collect();
    let copy = sent.clone();
    let client = thread::spawn(move || {
        let socket = TcpStream::connect(address).unwrap();
        let mut writer = socket.try_clone().unwrap();
        let writing = thread::spawn(move || writer.write_all(&copy).unwrap());
        let mut back = vec![0; 8 << 20];
        // The driver's buffers and the kernel's are full before this begins.
        writing.join().unwrap();
        (&socket).read_exact(&mut back).unwrap();
        back
    });
    until("the client", || {
        turn(&mut driver);
        client.is_finished()
    });
    assert!(client.join().unwrap() == sent, "other bytes came back");
    assert_eq!(driver.get_ref().machine().received, sent.len());
}

#[test]
fn who_is_connected_to_may_come_later_and_go_again() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut driver = Pollable::new(Driver::new(Echo::default(), Listeners::default())).unwrap();
    let connect = |driver: &mut Driver<Echo>| {
        driver.command(now(), |echo| echo.connect(&format!("tcp://{address}"), b"hello"))
    };
    driver.with(connect).unwrap();
    until("an attempt that failed", || {
        turn(&mut driver);
        driver.get_ref().trouble().is_some()
    });
    let (at, error) = driver.get_ref().trouble().unwrap();
    assert_eq!((at, error.kind()), (&Endpoint::Tcp(address), std::io::ErrorKind::ConnectionRefused));
    let listener = TcpListener::bind(address).unwrap();
    until("the connection", || {
        turn(&mut driver);
        driver.get_ref().trouble().is_none()
    });
    let (mut socket, _) = listener.accept().unwrap();
    let mut hello = [0; 5];
    socket.read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"hello");
    drop(socket);
    let mut events = Vec::new();
    until("its end", || {
        turn(&mut driver);
        events.extend(driver.with(Driver::poll_event).unwrap());
        events.last().is_some_and(|event| event == "eof")
    });
    assert_eq!(events, ["connected", "eof"]);
}

#[test]
fn an_address_that_can_not_be_read_is_the_end_of_its_connection() {
    let mut driver = Driver::new(Echo::default(), Listeners::default());
    driver.command(now(), |echo| echo.connect("tcp://some.name:1", b""));
    assert_eq!(driver.poll_event().as_deref(), Some("eof"));
}

#[test]
fn a_connection_that_the_machine_closes_is_closed_and_its_place_is_free() {
    let (mut driver, address) = echo();
    // More of them than may be there at a time.
    let client = thread::spawn(move || {
        for _ in 0..1100 {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(b"x").unwrap();
            assert_eq!(socket.read(&mut [0]).unwrap(), 0);
        }
    });
    while !client.is_finished() {
        turn(&mut driver);
    }
    client.join().unwrap();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(descriptors < 700, "{descriptors} descriptors");
}

#[test]
fn a_unix_socket_is_private_and_replaces_only_one_that_nobody_listens_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let endpoint = Endpoint::from(path.as_path());
    let listen = || Listeners::new([&endpoint]);
    // Somebody ended without removing it.
    drop(UnixListener::bind(&path).unwrap());
    let listeners = listen().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(listen(), Err(NetError::InUse { .. })));
    drop(listeners);
    assert!(!path.exists());
    fs::write(&path, "somebody else's").unwrap();
    assert!(matches!(listen(), Err(NetError::NotASocket { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "somebody else's");
}
