//! The frames of a stream as blocks: [`StreamTask`], the task of their blocks, and [`Part`], what such a block is.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use cuframes_core::{Key, Tile};

use crate::wire::{Block, BlockId, Roi};

/// The task of a stream's frames. As text, which is its id, it is `NAME@KEY@EPOCH`, with the epoch in 16 hexadecimal digits:
/// a worker that is attached to another publisher, whose frames have the same numbers, asks for a task that there is not.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StreamTask {
    /// What is done: not empty, and without `@`, or its text is none of a task.
    pub name: String,
    /// The stream.
    pub key: Key,
    /// The publisher's random number.
    pub epoch: u64,
}

impl fmt::Display for StreamTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, key, epoch } = self;
        write!(f, "{name}@{key}@{epoch:016x}")
    }
}

impl FromStr for StreamTask {
    type Err = NoStreamTask;

    /// Reads what is written, and nothing that only looks like it: there is one id for each task.
    fn from_str(text: &str) -> Result<Self, NoStreamTask> {
        let (rest, epoch) = text.rsplit_once('@').ok_or(NoStreamTask)?;
        let (name, key) = rest.rsplit_once('@').ok_or(NoStreamTask)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        if name.is_empty() || name.contains('@') || epoch.len() != 16 || !epoch.bytes().all(is_digit) {
            return Err(NoStreamTask);
        }
        Ok(Self {
            name: name.to_string(),
            key: key.parse().map_err(|_| NoStreamTask)?,
            epoch: u64::from_str_radix(epoch, 16).map_err(|_| NoStreamTask)?,
        })
    }
}

/// A text is not the id of a [`StreamTask`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoStreamTask;

impl fmt::Display for NoStreamTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a task of a stream is NAME@KEY@EPOCH, the epoch in 16 hexadecimal digits")
    }
}

impl core::error::Error for NoStreamTask {}

/// A part of a frame of a stream.
///
/// As a block it is a box of three axes, which is read and written: sequence, rows, columns. Its number is
/// [`number`](Self::number) and not that of [`spatial_id`](crate::spatial_id), which with three axes grows with the cube of the
/// sequence and does not fit into 64 bits any more after some million frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// The frame.
    pub seq: u64,
    /// The part of it.
    pub tile: Tile,
}

/// A block that is no [`Part`] of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NoPart {
    /// It does not write what it reads.
    Differs,
    /// It does not have three axes.
    Axes,
    /// It is not in exactly one frame.
    Frame,
    /// It has no extent in pixels, or one that no frame has.
    Pixels,
}

impl fmt::Display for NoPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Differs => "the block does not write what it reads",
            Self::Axes => "the block does not have three axes: sequence, rows, columns",
            Self::Frame => "the block is not in exactly one frame",
            Self::Pixels => "the block is no rectangle of pixels",
        })
    }
}

impl core::error::Error for NoPart {}

impl Part {
    /// The number of the block of tile `index` of a frame that has so many `tiles`: the sequence times `tiles`, and the index. For
    /// whole frames it is the sequence. None if it does not fit into 64 bits, the sequence not into the axis of a box, or
    /// there is no such tile.
    #[must_use]
    pub fn number(seq: u64, tiles: u64, index: u64) -> Option<u64> {
        let fits = index < tiles && i64::try_from(seq).is_ok_and(|seq| seq < i64::MAX);
        seq.checked_mul(tiles).filter(|_| fits)?.checked_add(index)
    }

    /// The block, as one of this task. A sequence that has no [`number`](Self::number) makes a block that is no part.
    #[must_use]
    pub fn block(&self, task_id: &str, number: u64) -> Block {
        let Self { seq, tile: Tile { y, x, height, width } } = *self;
        let seq = i64::try_from(seq).unwrap_or(i64::MAX);
        let roi = Roi::new(&[seq, y.into(), x.into()], &[1, height.into(), width.into()]);
        Block {
            read_roi: roi.clone(),
            write_roi: roi,
            block_id: BlockId::new(task_id, number),
            ..Block::default()
        }
    }

    /// The part that a block is. Whether the frame has such a tile is for [`FrameMeta::tile_planes`] to say.
    ///
    /// # Errors
    /// [`NoPart`].
    ///
    /// [`FrameMeta::tile_planes`]: cuframes_core::FrameMeta::tile_planes
    pub fn from_block(block: &Block) -> Result<Self, NoPart> {
        let Roi { offset, shape } = &block.read_roi;
        if block.read_roi != block.write_roi {
            return Err(NoPart::Differs);
        }
        let (&[seq, y, x], &[frames, height, width]) = (offset.as_slice(), shape.as_slice()) else {
            return Err(NoPart::Axes);
        };
        if frames != 1 || seq == i64::MAX {
            return Err(NoPart::Frame);
        }
        let pixels = |value| u32::try_from(value).map_err(|_| NoPart::Pixels);
        let tile = Tile { y: pixels(y)?, x: pixels(x)?, height: pixels(height)?, width: pixels(width)? };
        if tile.height == 0 || tile.width == 0 {
            return Err(NoPart::Pixels);
        }
        Ok(Self { seq: u64::try_from(seq).map_err(|_| NoPart::Frame)?, tile })
    }
}
