//! [`Pipe`]: one direction of a Unix stream socket, with the habits of Linux.

use std::collections::VecDeque;
use std::mem;

use cuframes_core::session::Transmit;

/// Bytes and descriptors on their way.
#[derive(Debug)]
pub struct Pipe<F = u32> {
    /// What each write left behind; descriptors stand with its first byte.
    segments: VecDeque<(VecDeque<u8>, Vec<F>)>,
    /// How many bytes fit; a writer has to wait beyond that.
    pub capacity: usize,
    /// The most bytes that one read takes.
    pub read_size: usize,
    ended: bool,
}

impl<F: Clone> Pipe<F> {
    /// Takes as much as fits, and says how many bytes that was.
    pub fn write(&mut self, Transmit { bytes, fd }: Transmit<'_, F>) -> usize {
        self.write_with(bytes, fd.into_iter().cloned().collect())
    }

    /// As [`write`](Self::write), with any number of descriptors: none of ours sends more than one.
    pub fn write_with(&mut self, bytes: &[u8], fds: Vec<F>) -> usize {
        let n = bytes.len().min(self.capacity.saturating_sub(self.len()));
        if n > 0 {
            self.segments.push_back((bytes.iter().copied().take(n).collect(), fds));
        }
        n
    }

    /// What one `recvmsg` gives: `None` if it would block, no bytes at the end of the stream.
    ///
    /// As on Linux it goes on over the borders of writes until it has taken bytes that came with a descriptor. So a
    /// descriptor arrives with the first byte of its message, or earlier with bytes sent before; never later (D-22).
    pub fn read(&mut self, fds: &mut VecDeque<F>) -> Option<Vec<u8>> {
        let mut read = Vec::new();
        while read.len() < self.read_size
            && let Some((bytes, carried)) = self.segments.front_mut()
        {
            let n = bytes.len().min(self.read_size - read.len());
            read.extend(bytes.drain(..n));
            let before = fds.len();
            fds.extend(mem::take(carried));
            if bytes.is_empty() {
                self.segments.pop_front();
            }
            if fds.len() > before {
                break;
            }
        }
        (self.ended || !read.is_empty()).then_some(read)
    }

    /// The writer closed its end.
    pub const fn end(&mut self) {
        self.ended = true;
    }

    fn len(&self) -> usize {
        self.segments.iter().map(|(bytes, _)| bytes.len()).sum()
    }
}

impl<F> Default for Pipe<F> {
    fn default() -> Self {
        Self { segments: VecDeque::new(), capacity: usize::MAX, read_size: usize::MAX, ended: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> Pipe {
        let mut pipe = Pipe::default();
        pipe.write(Transmit { bytes: b"aaaa", fd: None });
        pipe.write(Transmit { bytes: b"bbbb", fd: Some(&1) });
        pipe.write(Transmit { bytes: b"cccc", fd: None });
        pipe
    }

    fn reads(mut pipe: Pipe) -> Vec<(String, VecDeque<u32>)> {
        let mut read = || {
            let mut fds = VecDeque::new();
            let bytes = pipe.read(&mut fds)?;
            Some((String::from_utf8(bytes).unwrap(), fds))
        };
        std::iter::from_fn(&mut read).collect()
    }

    #[test]
    fn a_read_ends_behind_the_bytes_that_came_with_a_descriptor() {
        assert_eq!(reads(pipe()), [("aaaabbbb".into(), [1].into()), ("cccc".into(), [].into())]);
    }

    #[test]
    fn a_descriptor_comes_with_the_first_byte_of_its_write() {
        let pipe = Pipe { read_size: 5, ..pipe() };
        let expected = [("aaaab".into(), [1].into()), ("bbbcc".into(), [].into()), ("cc".into(), [].into())];
        assert_eq!(reads(pipe), expected);
    }

    #[test]
    fn a_full_pipe_takes_only_what_fits() {
        let mut pipe = Pipe { capacity: 14, ..pipe() };
        assert_eq!(pipe.write(Transmit { bytes: b"dddd", fd: Some(&2) }), 2);
        assert_eq!(pipe.write(Transmit { bytes: b"dd", fd: None }), 0);
        assert_eq!(reads(pipe).last(), Some(&("ccccdd".into(), [2].into())));
    }
}
