//! Device memory: a [`Storage`] is a file that is read and written at positions, never mapped, so every process that has
//! it open has the same memory. A [`Segment`] is a part of one that work on a stream uses.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::session::{Claim, new_file, open_shared, stays_locked};

/// A file of device memory.
#[derive(Debug)]
pub(crate) struct Storage {
    file: File,
    /// The name under which others find it.
    path: Option<PathBuf>,
    /// What the device has less of while this is there. An importer has none.
    _claim: Option<Claim>,
}

impl Storage {
    /// Memory that other processes find by its name.
    pub(crate) fn named(path: PathBuf, len: u64, claim: Claim) -> io::Result<Self> {
        let file = new_file(&path)?;
        file.set_len(len)?;
        Ok(Self { file, path: Some(path), _claim: Some(claim) })
    }

    /// Memory without a name.
    pub(crate) fn nameless(len: u64, claim: Claim) -> io::Result<Self> {
        let file = File::from(memfd_create("fake-cuda", MemfdFlags::CLOEXEC)?);
        file.set_len(len)?;
        Ok(Self { file, path: None, _claim: Some(claim) })
    }

    /// Memory of another process. As long as this is there its owner can tell.
    pub(crate) fn of_another(path: &Path) -> io::Result<Self> {
        Ok(Self::from_file(open_shared(path)?))
    }

    /// Memory that came as a file.
    pub(crate) const fn from_file(file: File) -> Self {
        Self { file, path: None, _claim: None }
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether another process has it open.
    pub(crate) fn is_used_elsewhere(&self) -> io::Result<bool> {
        stays_locked(&self.file)
    }

    /// Nobody finds it any more.
    pub(crate) fn unlink(&self) {
        if let Some(path) = &self.path {
            // The whole directory may be gone.
            let _ = fs::remove_file(path);
        }
    }

    pub(crate) fn fill(&self, offset: u64, len: u64, byte: u8) -> io::Result<()> {
        let chunk = vec![byte; usize_of(len.min(FILL_CHUNK))];
        let mut done = 0;
        while done < len {
            let part = chunk.get(..usize_of((len - done).min(FILL_CHUNK))).unwrap_or_default();
            self.file.write_all_at(part, offset + done)?;
            done += u64_of(part.len());
        }
        Ok(())
    }
}

/// A part of a storage. While there is one the memory is in use: its range in memory can tell by `_in_use`.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) storage: Arc<Storage>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) _in_use: Arc<()>,
}

/// Reads `len` bytes from `start` on of memory that is made of these segments.
pub(crate) fn read(segments: &[Segment], start: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize_of(len)];
    let mut rest = bytes.as_mut_slice();
    for (storage, offset, len) in overlap(segments, start, len) {
        let Some((part, behind)) = std::mem::take(&mut rest).split_at_mut_checked(usize_of(len)) else {
            break;
        };
        storage.file.read_exact_at(part, offset)?;
        rest = behind;
    }
    Ok(bytes)
}

/// Writes these bytes from `start` on.
pub(crate) fn write(segments: &[Segment], start: u64, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    for (storage, offset, len) in overlap(segments, start, u64_of(bytes.len())) {
        let Some((part, behind)) = rest.split_at_checked(usize_of(len)) else { break };
        storage.file.write_all_at(part, offset)?;
        rest = behind;
    }
    Ok(())
}

/// Fills `len` bytes from `start` on.
pub(crate) fn fill(segments: &[Segment], start: u64, len: u64, byte: u8) -> io::Result<()> {
    for (storage, offset, len) in overlap(segments, start, len) {
        storage.fill(offset, len, byte)?;
    }
    Ok(())
}

/// The parts of these segments that `len` bytes from `start` on lie in: storage, offset in it, length.
fn overlap(segments: &[Segment], start: u64, len: u64) -> impl Iterator<Item = (&Storage, u64, u64)> {
    let end = start.saturating_add(len);
    let mut at = 0_u64;
    segments.iter().filter_map(move |segment| {
        let from = start.max(at);
        let to = end.min(at + segment.len);
        let part = (from < to).then(|| (&*segment.storage, segment.offset + (from - at), to - from));
        at += segment.len;
        part
    })
}

/// A length in memory; `usize` has 64 bits wherever this runs.
pub(crate) fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// As [`usize_of`], the other way.
pub(crate) fn u64_of(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

const FILL_CHUNK: u64 = 1 << 20;
