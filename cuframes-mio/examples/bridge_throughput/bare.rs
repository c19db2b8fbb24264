//! The same bytes over a bare socket.

use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use cuframes_mio::core::FrameMeta;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_nodelay};

use crate::Outcome;

/// As much memory as the ring of the stream has.
pub(crate) fn slots(meta: &FrameMeta) -> Outcome<Vec<Vec<u8>>> {
    let size = usize::try_from(meta.frame_size_bytes)?;
    Ok((0..4).map(|_| vec![1; size]).collect())
}

pub(crate) fn send(bare: &mut TcpStream, slots: &[Vec<u8>], frames: u64) -> Outcome<()> {
    for slot in slots.iter().cycle().take(usize::try_from(frames)?) {
        let mut rest = &slot[..];
        while !rest.is_empty() {
            let sent = bare.write_vectored(&[IoSlice::new(rest)])?;
            rest = rest.get(sent..).unwrap_or_default();
        }
    }
    // All has arrived.
    bare.read_exact(&mut [0])?;
    Ok(())
}

pub(crate) fn receive(bare: &mut TcpStream, slots: &mut [Vec<u8>], frames: u64) -> Outcome<()> {
    for slot in (0..slots.len()).cycle().take(usize::try_from(frames)?) {
        let slot = slots.get_mut(slot).ok_or("no slot")?;
        bare.read_exact(slot)?;
    }
    Ok(bare.write_all(&[1])?)
}

/// The same as the sockets of a link have.
pub(crate) fn tune(socket: impl AsFd) -> Outcome<()> {
    set_socket_send_buffer_size(&socket, BUFFER)?;
    set_socket_recv_buffer_size(&socket, BUFFER)?;
    set_tcp_nodelay(&socket, true)?;
    Ok(())
}

const BUFFER: usize = 4 << 20;
