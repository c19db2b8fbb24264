//! [`Grid`]: a box that is cut into blocks, and [`spatial_id`], by which a block is known.

use alloc::vec::Vec;
use core::fmt;

use crate::wire::{Block, BlockId, Roi};

/// The number of the block that writes `write`, in a task that writes `total`.
///
/// Each axis has an index, in units of the block's extent from the beginning of `total`, and these are paired into one
/// number. It depends on nothing else, so that whoever starts again knows the same block by the same number. One that does
/// not fit in 64 bits is `u64::MAX`.
#[must_use]
pub fn spatial_id(total: &Roi, write: &Roi) -> u64 {
    let axes = total.offset.iter().zip(&write.offset).zip(&write.shape);
    let indices: Vec<u128> = axes
        .map(|((total, offset), shape)| {
            let index =
                i128::from(*offset).saturating_sub(i128::from(*total)).div_euclid(i128::from(*shape).max(1));
            u128::try_from(index).unwrap_or(0)
        })
        .collect();
    u64::try_from(pair(&indices)).unwrap_or(u64::MAX)
}

/// One number for several: how many tuples come before this one, ordered by their sum, and then by the rule for one axis less.
fn pair(indices: &[u128]) -> u128 {
    match indices {
        [] => 0,
        [index] => *index,
        [first @ .., _] => {
            let sum = indices.iter().fold(0_u128, |sum, index| sum.saturating_add(*index));
            simplex(indices.len(), sum).saturating_add(pair(first))
        }
    }
}

/// How many tuples of `axes` numbers have a sum below `sum`: sum (sum + 1) ... (sum + axes - 1) / axes!
fn simplex(axes: usize, sum: u128) -> u128 {
    let mut value = 1_u128;
    for n in (0..).take(axes) {
        // The product of so many numbers in a row can be divided at each step.
        match value.checked_mul(sum.saturating_add(n)) {
            Some(product) => value = product / (n + 1),
            None => return u128::MAX,
        }
    }
    value
}

/// What becomes of blocks at the far edges of the total box, where they do not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Fit {
    /// They are left out: only whole blocks whose reading fits, too.
    #[default]
    Valid,
    /// They go beyond the edge.
    Overhang,
    /// They are made smaller.
    Shrink,
}

/// A box that is cut into blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grid {
    total: Roi,
    read: Roi,
    write: Roi,
    fit: Fit,
    /// How many blocks there are along each axis.
    counts: Vec<u64>,
    /// Where the first block writes.
    origin: Vec<i64>,
}

/// A grid that can't be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GridError {
    /// Boxes with different numbers of axes, or without any.
    Axes,
    /// A box without extent, or one that ends beyond 2^63, as a block may that goes over the edge.
    Extent {
        /// Along which axis.
        axis: usize,
    },
    /// A box of writing that is not within that of reading.
    Outside {
        /// Along which axis.
        axis: usize,
    },
    /// More blocks than 2^63.
    TooMany,
}

impl fmt::Display for GridError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Axes => f.write_str("the boxes need the same number of axes, one at least"),
            Self::Extent { axis } => write!(f, "a box has no extent along axis {axis}, or too much"),
            Self::Outside { axis } => {
                write!(f, "what is written is not within what is read, along axis {axis}")
            }
            Self::TooMany => f.write_str("there are too many blocks"),
        }
    }
}

impl core::error::Error for GridError {}

impl Grid {
    /// Cuts `total`, which is what all blocks read together, into blocks that read `read` and write `write`, moved to each
    /// place of the grid. Their writing covers what is left of `total` without the margin that only is read.
    ///
    /// # Errors
    /// If the boxes do not go together.
    pub fn new(total: Roi, read: Roi, write: Roi, fit: Fit) -> Result<Self, GridError> {
        let axes = total.offset.len();
        if axes == 0
            || [&total, &read, &write]
                .into_iter()
                .any(|roi| roi.offset.len() != axes || roi.shape.len() != axes)
        {
            return Err(GridError::Axes);
        }
        let (mut counts, mut origin) = (Vec::new(), Vec::new());
        let mut blocks = 1_u64;
        for axis in 0..axes {
            let side = |roi: &Roi| {
                let offset = *roi.offset.get(axis)?;
                let shape = *roi.shape.get(axis).filter(|shape| **shape > 0)?;
                Some((offset, shape, offset.checked_add(shape)?))
            };
            let extent = GridError::Extent { axis };
            let (total_from, _, total_to) = side(&total).ok_or(extent)?;
            let (read_from, _, read_to) = side(&read).ok_or(extent)?;
            let (write_from, write_len, write_to) = side(&write).ok_or(extent)?;
            if read_from > write_from || read_to < write_to {
                return Err(GridError::Outside { axis });
            }
            // The margins are not written.
            let from = total_from.checked_add(write_from - read_from).ok_or(extent)?;
            let to = total_to.checked_sub(read_to - write_to).ok_or(extent)?;
            let len = to.checked_sub(from).unwrap_or(0).max(0);
            let whole = len / write_len;
            let count = if fit != Fit::Valid && len % write_len > 0 { whole + 1 } else { whole };
            let count = u64::try_from(count).unwrap_or(0);
            blocks =
                blocks.checked_mul(count).filter(|blocks| *blocks < 1 << 63).ok_or(GridError::TooMany)?;
            if fit == Fit::Overhang && whole < i64::try_from(count).unwrap_or(i64::MAX) {
                // Where the last one ends, which goes over.
                let last = from.checked_add(whole.saturating_mul(write_len));
                last.and_then(|last| last.checked_add(read_to - write_from)).ok_or(extent)?;
            }
            counts.push(count);
            origin.push(from);
        }
        Ok(Self { total, read, write, fit, counts, origin })
    }

    /// How many blocks there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.iter().product()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The blocks, the last axis fastest, as those of this task.
    pub fn blocks(&self, task_id: &str) -> impl Iterator<Item = Block> {
        (0..self.len()).map(move |number| self.block(task_id, number))
    }

    fn block(&self, task_id: &str, mut number: u64) -> Block {
        let mut places: Vec<i64> = self
            .counts
            .iter()
            .rev()
            .map(|count| {
                let place = number % count;
                number /= count;
                i64::try_from(place).unwrap_or(i64::MAX)
            })
            .collect();
        places.reverse();
        let (mut read_roi, mut write_roi) = (self.read.clone(), self.write.clone());
        for ((place, origin), len) in places.iter_mut().zip(&self.origin).zip(&self.write.shape) {
            *place = origin.saturating_add(place.saturating_mul(*len));
        }
        // The margin between the two is what stays; how far the block is moved may not be a number of 64 bits.
        for ((read, write), at) in read_roi.offset.iter_mut().zip(&mut write_roi.offset).zip(places) {
            *read = at.saturating_sub(write.saturating_sub(*read));
            *write = at;
        }
        let spatial_id = spatial_id(&self.total, &write_roi);
        if self.fit == Fit::Shrink {
            self.shrink(&mut read_roi, &mut write_roi);
        }
        Block { read_roi, write_roi, block_id: BlockId::new(task_id, spatial_id), ..Block::default() }
    }

    /// Cuts off what reads beyond the total box; the margin after what is written keeps its width.
    fn shrink(&self, read: &mut Roi, write: &mut Roi) {
        let total = self.total.offset.iter().zip(&self.total.shape);
        let boxes = read.offset.iter().zip(&mut read.shape).zip(&mut write.shape);
        for ((total_from, total_len), ((read_from, read_len), write_len)) in total.zip(boxes) {
            // Not by way of its end, which may lie beyond all numbers.
            let left = total_len.saturating_sub(read_from.saturating_sub(*total_from));
            let beyond = read_len.saturating_sub(left).max(0);
            *read_len -= beyond;
            *write_len -= beyond;
        }
    }
}
