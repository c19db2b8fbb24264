//! [`Block`]: a piece of work, and what it consists of.

use alloc::string::String;
use alloc::vec::Vec;

use super::bincode::{DecodeError, Reader, Writer};
use super::message::Version;

/// A box: where it begins and how large it is, one number for each axis.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Roi {
    /// First coordinate of each axis.
    pub offset: Vec<i64>,
    /// Extent along each axis.
    pub shape: Vec<i64>,
}

impl Roi {
    /// The box with this beginning and this extent.
    #[must_use]
    pub fn new(offset: &[i64], shape: &[i64]) -> Self {
        Self { offset: offset.into(), shape: shape.into() }
    }

    /// Whether the two have something in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let axes = self.offset.iter().zip(&self.shape).zip(other.offset.iter().zip(&other.shape));
        axes.into_iter()
            .all(|((a, a_len), (b, b_len))| a.saturating_add(*a_len) > *b && b.saturating_add(*b_len) > *a)
    }

    fn write(&self, writer: &mut Writer) {
        for coordinate in [&self.offset, &self.shape] {
            writer.len(coordinate.len());
            coordinate.iter().for_each(|value| writer.i64(*value));
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut coordinate = || (0..reader.axes()?).map(|_| reader.i64()).collect::<Result<Vec<_>, _>>();
        Ok(Self { offset: coordinate()?, shape: coordinate()? })
    }
}

/// Which block of which task.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockId {
    /// The task.
    pub task_id: String,
    /// The block in it; see [`spatial_id`](crate::spatial_id).
    pub spatial_id: u64,
}

impl BlockId {
    /// The block of this number in this task.
    #[must_use]
    pub fn new(task_id: impl Into<String>, spatial_id: u64) -> Self {
        Self { task_id: task_id.into(), spatial_id }
    }
}

/// How far a block is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Status {
    /// Nobody has worked on it.
    #[default]
    Created,
    /// Somebody does.
    Processing,
    /// It is done.
    Success,
    /// It could not be done; as what a server sends: by others before.
    Failed,
}

/// What a worker measured about its work on a block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stats {
    /// Time that passed, in seconds.
    pub wall_seconds: f64,
    /// Time that processors worked, in seconds.
    pub cpu_seconds: f64,
    /// Most memory at a time, in bytes.
    pub peak_rss_bytes: u64,
    /// Bytes read.
    pub io_read_bytes: u64,
    /// Bytes written.
    pub io_write_bytes: u64,
    /// Use of the GPU in per cent; NaN if it is not known.
    pub gpu_util_pct: f32,
    /// GPU memory, in bytes.
    pub gpu_mem_bytes: u64,
}

/// A piece of work.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Block {
    /// What is to be read: what is written and what lies around it.
    pub read_roi: Roi,
    /// What is to be written.
    pub write_roi: Roi,
    /// Which one it is.
    pub block_id: BlockId,
    /// How far it is.
    pub status: Status,
    /// What was measured; not in [`Version::W0`].
    pub stats: Option<Stats>,
}

impl Block {
    pub(super) fn write(&self, writer: &mut Writer, version: Version) {
        let Self { read_roi, write_roi, block_id, status, stats } = self;
        read_roi.write(writer);
        write_roi.write(writer);
        writer.str(&block_id.task_id);
        writer.u64(block_id.spatial_id);
        writer.u8(match status {
            Status::Created => 0,
            Status::Processing => 1,
            Status::Success => 2,
            Status::Failed => 3,
        });
        if version == Version::W2 {
            writer.option(stats.as_ref(), |writer, stats| {
                writer.f64(stats.wall_seconds);
                writer.f64(stats.cpu_seconds);
                for bytes in [stats.peak_rss_bytes, stats.io_read_bytes, stats.io_write_bytes] {
                    writer.u64(bytes);
                }
                writer.f32(stats.gpu_util_pct);
                writer.u64(stats.gpu_mem_bytes);
            });
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>, version: Version) -> Result<Self, DecodeError> {
        let read_roi = Roi::read(reader)?;
        let write_roi = Roi::read(reader)?;
        let block_id = BlockId { task_id: reader.str()?, spatial_id: reader.u64()? };
        let status = match reader.variant(4)? {
            0 => Status::Created,
            1 => Status::Processing,
            2 => Status::Success,
            _ => Status::Failed,
        };
        let stats = |reader: &mut Reader<'_>| {
            Ok(Stats {
                wall_seconds: reader.f64()?,
                cpu_seconds: reader.f64()?,
                peak_rss_bytes: reader.u64()?,
                io_read_bytes: reader.u64()?,
                io_write_bytes: reader.u64()?,
                gpu_util_pct: reader.f32()?,
                gpu_mem_bytes: reader.u64()?,
            })
        };
        let stats = if version == Version::W2 { reader.option(stats)? } else { None };
        Ok(Self { read_roi, write_roi, block_id, status, stats })
    }
}
