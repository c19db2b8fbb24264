//! [`Tile`]: a part of a frame, and [`Tiles`], a frame that is cut into such parts.
//!
//! Nothing of it is on the wire of a stream; who shares out the work on one frame among several agrees on it.

use core::fmt;

use super::meta::{Format, FrameMeta, Further, Plane};

/// A rectangle of a frame, in pixels: rows and columns of its first plane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tile {
    /// First row.
    pub y: u32,
    /// First column.
    pub x: u32,
    /// Number of rows.
    pub height: u32,
    /// Number of columns.
    pub width: u32,
}

/// A frame that is cut into tiles of one size, row by row; those at the far edges are smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tiles {
    /// The frame.
    frame: (u32, u32),
    /// A tile that is not at the far edges.
    tile: (u32, u32),
}

/// A tile that a frame does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TileError {
    /// It has no extent.
    Empty,
    /// It goes beyond the frame.
    Outside,
    /// It cuts a block of 2x2 pixels in two that has one chroma sample.
    Chroma {
        /// Along which axis: `"y"` or `"x"`.
        axis: &'static str,
    },
}

impl fmt::Display for TileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the tile has no extent"),
            Self::Outside => f.write_str("the tile goes beyond the frame"),
            Self::Chroma { axis } => write!(
                f,
                "the tile cuts through a chroma sample along {axis}; in this format tiles begin and end at even pixels"
            ),
        }
    }
}

impl core::error::Error for TileError {}

impl FrameMeta {
    /// The part of each plane that a tile covers: each as a plane with the same pitch, that starts at the tile's first byte.
    /// None for an unknown format.
    ///
    /// Where a chroma sample stands for 2x2 pixels (NV12, P010, I420), a tile begins at an even row and column, and has an even
    /// number of them unless it ends where the frame does.
    ///
    /// # Errors
    /// [`TileError`], if the frame has no such tile.
    pub fn tile_planes(&self, tile: &Tile) -> Result<impl Iterator<Item = Plane> + Clone + use<>, TileError> {
        let Tile { y, x, height, width } = *tile;
        for (from, len, frame) in [(y, height, self.height), (x, width, self.width)] {
            if len == 0 {
                return Err(TileError::Empty);
            }
            if u64::from(from) + u64::from(len) > frame.into() {
                return Err(TileError::Outside);
            }
        }
        if self.format.halves_chroma() {
            for (axis, from, len, frame) in [("y", y, height, self.height), ("x", x, width, self.width)] {
                if from % 2 != 0 || len % 2 != 0 && len != frame - from {
                    return Err(TileError::Chroma { axis });
                }
            }
        }
        let (_, bytes, further) = self.format.shape().unwrap_or((0, 0, Further::Nothing));
        // Pixels for one sample, along both axes, and bytes of what is one sample: both of them where they are interleaved.
        let (pixels, sample) = match further {
            Further::Interleaved => (2, bytes.saturating_mul(2)),
            Further::Subsampled => (2, 1),
            Further::FullChroma => (1, 1),
            Further::Nothing | Further::Channels => (1, bytes),
        };
        Ok(self.planes().enumerate().map(move |(number, plane)| {
            let (pixels, sample) = if number == 0 { (1, bytes) } else { (pixels, sample) };
            let down = u64::from(y / pixels).saturating_mul(plane.pitch.into());
            let right = u64::from(x / pixels) * u64::from(sample);
            Plane {
                offset: plane.offset.saturating_add(down).saturating_add(right),
                pitch: plane.pitch,
                row_bytes: width.div_ceil(pixels).saturating_mul(sample),
                rows: height.div_ceil(pixels),
            }
        }))
    }

    /// The frame, cut into tiles of this size.
    ///
    /// # Errors
    /// [`TileError::Empty`] if it is none, and [`TileError::Chroma`] if it is odd along an axis along which there is more than
    /// one tile, in a format where a chroma sample stands for 2x2 pixels.
    pub fn tiles(&self, height: u32, width: u32) -> Result<Tiles, TileError> {
        if height == 0 || width == 0 {
            return Err(TileError::Empty);
        }
        if self.format.halves_chroma() {
            for (axis, len, frame) in [("y", height, self.height), ("x", width, self.width)] {
                if len % 2 != 0 && len < frame {
                    return Err(TileError::Chroma { axis });
                }
            }
        }
        Ok(Tiles { frame: (self.height, self.width), tile: (height, width) })
    }
}

impl Tiles {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        u64::from(self.frame.0.div_ceil(self.tile.0)) * u64::from(self.columns())
    }

    /// Whether there are none, which is so for a frame without extent only.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number `n`, counted from 0 along the rows.
    #[must_use]
    pub fn get(&self, n: u64) -> Option<Tile> {
        let columns = u64::from(self.columns());
        let (row, column) = (n.checked_div(columns)?, n.checked_rem(columns)?);
        let part = |place: u64, len: u32, frame: u32| {
            let from = u32::try_from(place).ok()?.checked_mul(len).filter(|from| *from < frame)?;
            Some((from, len.min(frame - from)))
        };
        let (y, height) = part(row, self.tile.0, self.frame.0)?;
        let (x, width) = part(column, self.tile.1, self.frame.1)?;
        Some(Tile { y, x, height, width })
    }

    /// All of them, row by row.
    pub fn iter(&self) -> impl Iterator<Item = Tile> + Clone + use<> {
        let tiles = *self;
        (0..tiles.len()).filter_map(move |n| tiles.get(n))
    }

    const fn columns(&self) -> u32 {
        self.frame.1.div_ceil(self.tile.1)
    }
}

impl Format {
    /// Whether a chroma sample stands for 2x2 pixels.
    fn halves_chroma(self) -> bool {
        matches!(self.shape(), Some((.., Further::Interleaved | Further::Subsampled)))
    }
}
