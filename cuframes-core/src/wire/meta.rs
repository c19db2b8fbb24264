//! Frame geometry (§2.1): [`FrameMeta`] and the planes of the 13 formats.

use core::fmt;
use core::str::FromStr;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Place, Problem, Violation};
use crate::number::wire_number;

wire_number! {
    /// Pixel format (`cuframes_format_t`).
    pub struct Format(u32) {
        /// 4:2:0, a Y plane and an interleaved UV plane, 8 bits.
        NV12 = 1, "nv12";
        /// As NV12 with 16-bit samples, the value in the high 10 bits.
        P010 = 2, "p010";
        /// 4:2:0, three planes, 8 bits.
        I420 = 3, "i420";
        /// 4:4:4, three planes, 8 bits.
        I444 = 4, "i444";
        /// Packed R, G, B bytes.
        RGB24 = 5, "rgb24";
        /// Packed B, G, R bytes.
        BGR24 = 6, "bgr24";
        /// Packed R, G, B, A bytes.
        RGBA32 = 7, "rgba32";
        /// Packed B, G, R, A bytes.
        BGRA32 = 8, "bgra32";
        /// One plane, 8 bits.
        GRAY8 = 9, "gray8";
        /// One plane, 16 bits, little-endian.
        GRAY16 = 10, "gray16";
        /// R, G and B planes of `f32` (CHW).
        RGB_F32_PLANAR = 11, "rgb-f32-planar";
        /// R, G and B planes of `f16` (CHW).
        RGB_F16_PLANAR = 12, "rgb-f16-planar";
        /// Any payload: width is its size in bytes, height is 1.
        BYTES = 13, "bytes";
    }
}

impl Format {
    /// Every format of version 1.
    pub const ALL: [Self; 13] = [
        Self::NV12,
        Self::P010,
        Self::I420,
        Self::I444,
        Self::RGB24,
        Self::BGR24,
        Self::RGBA32,
        Self::BGRA32,
        Self::GRAY8,
        Self::GRAY16,
        Self::RGB_F32_PLANAR,
        Self::RGB_F16_PLANAR,
        Self::BYTES,
    ];

    /// Bits per pixel, bytes per pixel of the first plane, and what planes follow it.
    pub(super) const fn shape(self) -> Option<(u32, u32, Further)> {
        Some(match self {
            Self::NV12 => (12, 1, Further::Interleaved),
            Self::P010 => (24, 2, Further::Interleaved),
            Self::I420 => (12, 1, Further::Subsampled),
            Self::I444 => (24, 1, Further::FullChroma),
            Self::RGB24 | Self::BGR24 => (24, 3, Further::Nothing),
            Self::RGBA32 | Self::BGRA32 => (32, 4, Further::Nothing),
            Self::GRAY8 | Self::BYTES => (8, 1, Further::Nothing),
            Self::GRAY16 => (16, 2, Further::Nothing),
            Self::RGB_F32_PLANAR => (96, 4, Further::Channels),
            Self::RGB_F16_PLANAR => (48, 2, Further::Channels),
            _ => return None,
        })
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|format| format.name() == Some(text)).ok_or(UnknownFormat)
    }
}

/// A text is not the name of a [`Format`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownFormat;

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown format; use one of")?;
        Format::ALL.into_iter().try_for_each(|format| write!(f, " {format}"))
    }
}

impl core::error::Error for UnknownFormat {}

/// The planes after the first.
#[derive(Clone, Copy)]
pub(super) enum Further {
    Nothing,
    /// One plane with both chroma samples of each 2x2 block.
    Interleaved,
    /// Two planes with one chroma sample of each 2x2 block.
    Subsampled,
    /// Two chroma planes of the first one's size.
    FullChroma,
    /// Two more planes that look like the first.
    Channels,
}

/// Geometry of every frame of a stream (§2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameMeta {
    /// Pixel format.
    pub format: Format,
    /// Width in pixels (bytes for [`Format::BYTES`]).
    pub width: u32,
    /// Height in rows.
    pub height: u32,
    /// Bytes from one row of the first plane to the next; of every plane for the planar RGB formats.
    pub pitch_y: u32,
    /// Bytes from one row of a chroma plane to the next; 0 where there is none.
    pub pitch_uv: u32,
    /// Bits per pixel, informative.
    pub bits_per_pixel: u32,
    /// Bytes of a whole frame, all planes.
    pub frame_size_bytes: u64,
}

/// One plane of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plane {
    /// Where it starts in the frame, in bytes.
    pub offset: u64,
    /// Bytes from one row to the next.
    pub pitch: u32,
    /// Bytes of a row that mean something; the rest up to `pitch` is padding.
    pub row_bytes: u32,
    /// Number of rows.
    pub rows: u32,
}

impl FrameMeta {
    /// Frames in memory that we allocate: pitches are the smallest multiples of 256 (D-18).
    ///
    /// # Errors
    /// [`MetaError`] names the field: an unknown format, a zero size, a size too large for 32-bit pitches, or more
    /// than one row of [`Format::BYTES`].
    pub fn new(format: Format, width: u32, height: u32) -> Result<Self, MetaError> {
        let (_, bytes, further) = format.shape().ok_or(MetaError::UnknownFormat(format))?;
        let too_large = MetaError::Overflow { field: "width" };
        let aligned = |row_bytes: u64| {
            u32::try_from(row_bytes.next_multiple_of(PITCH_ALIGNMENT)).map_err(|_| too_large)
        };
        let width_bytes = u64::from(width) * u64::from(bytes);
        let pitch_uv = match further {
            Further::Nothing | Further::Channels => 0,
            Further::Interleaved => aligned(u64::from(width.div_ceil(2)) * 2 * u64::from(bytes))?,
            Further::Subsampled => aligned(width.div_ceil(2).into())?,
            Further::FullChroma => aligned(width_bytes)?,
        };
        Self::with_pitches(format, width, height, aligned(width_bytes)?, pitch_uv)
    }

    /// Frames with rows `pitch_y` and `pitch_uv` bytes apart, in memory that somebody else laid out.
    ///
    /// # Errors
    /// [`MetaError`] names the field: as for [`new`](Self::new), or a pitch smaller than its row.
    pub fn with_pitches(
        format: Format,
        width: u32,
        height: u32,
        pitch_y: u32,
        pitch_uv: u32,
    ) -> Result<Self, MetaError> {
        let (bits_per_pixel, ..) = format.shape().ok_or(MetaError::UnknownFormat(format))?;
        let mut meta =
            Self { format, width, height, pitch_y, pitch_uv, bits_per_pixel, frame_size_bytes: u64::MAX };
        meta.validate()?;
        let end = meta.planes().last().map(|plane| plane.end());
        meta.frame_size_bytes = end.flatten().ok_or(MetaError::Overflow { field: "frame_size_bytes" })?;
        Ok(meta)
    }

    /// Checks that the geometry holds together; every other method is total, whether it does or not.
    ///
    /// # Errors
    /// [`MetaError`] names the first field that is wrong.
    pub fn validate(&self) -> Result<(), MetaError> {
        let Self { format, width, height, pitch_y, pitch_uv, .. } = *self;
        if format.shape().is_none() {
            return Err(MetaError::UnknownFormat(format));
        }
        for (field, value) in [("width", width), ("height", height)] {
            if value == 0 {
                return Err(MetaError::Zero { field });
            }
        }
        if format == Format::BYTES && height != 1 {
            return Err(MetaError::BytesHeight { height });
        }
        let mut needed = 0;
        for (number, plane) in self.planes().enumerate() {
            let (field, pitch) = if number == 0 { ("pitch_y", pitch_y) } else { ("pitch_uv", pitch_uv) };
            if plane.pitch < plane.row_bytes {
                return Err(MetaError::Pitch { field, pitch, row_bytes: plane.row_bytes });
            }
            // The last row of the last plane needs no padding.
            let end = plane.end().and_then(|end| end.checked_sub((plane.pitch - plane.row_bytes).into()));
            needed = end.ok_or(MetaError::Overflow { field: "frame_size_bytes" })?.max(needed);
        }
        if self.frame_size_bytes < needed {
            return Err(MetaError::FrameSize { size: self.frame_size_bytes, needed });
        }
        Ok(())
    }

    /// The planes, in the order in which they lie in memory; none for an unknown format.
    pub fn planes(&self) -> impl Iterator<Item = Plane> + Clone + use<> {
        let Self { width, height, pitch_y, pitch_uv, .. } = *self;
        let shape = self.format.shape();
        let count = match shape {
            None => 0,
            Some((.., Further::Nothing)) => 1,
            Some((.., Further::Interleaved)) => 2,
            Some((.., Further::Subsampled | Further::FullChroma | Further::Channels)) => 3,
        };
        let (_, bytes, further) = shape.unwrap_or((0, 0, Further::Nothing));
        // Chroma dimensions round up for odd sizes (D-18).
        let (half_width, half_height) = (width.div_ceil(2), height.div_ceil(2));
        let (pitch, row_bytes, rows) = match further {
            Further::Nothing | Further::Channels => (pitch_y, width.saturating_mul(bytes), height),
            Further::Interleaved => {
                (pitch_uv, half_width.saturating_mul(2).saturating_mul(bytes), half_height)
            }
            Further::Subsampled => (pitch_uv, half_width, half_height),
            Further::FullChroma => (pitch_uv, width, height),
        };
        let first = Plane { offset: 0, pitch: pitch_y, row_bytes: width.saturating_mul(bytes), rows: height };
        let second = Plane { offset: first.end().unwrap_or(u64::MAX), pitch, row_bytes, rows };
        let third = Plane { offset: second.end().unwrap_or(u64::MAX), ..second };
        [first, second, third].into_iter().take(count)
    }

    /// The 64 bytes of the wire and of the region (§2.1).
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 64] {
        zerocopy::transmute!(RawMeta {
            format: self.format.0.into(),
            width: self.width.into(),
            height: self.height.into(),
            pitch_y: self.pitch_y.into(),
            pitch_uv: self.pitch_uv.into(),
            bits_per_pixel: self.bits_per_pixel.into(),
            frame_size_bytes: self.frame_size_bytes.into(),
            reserved: [0; 32],
        })
    }

    /// Reads the 64 bytes of the wire or of the region; [`validate`](Self::validate) them before use.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 64]) -> Self {
        let raw: RawMeta = zerocopy::transmute!(*bytes);
        Self {
            format: Format(raw.format.get()),
            width: raw.width.get(),
            height: raw.height.get(),
            pitch_y: raw.pitch_y.get(),
            pitch_uv: raw.pitch_uv.get(),
            bits_per_pixel: raw.bits_per_pixel.get(),
            frame_size_bytes: raw.frame_size_bytes.get(),
        }
    }
}

impl Plane {
    /// The first byte after the padding of the last row.
    fn end(&self) -> Option<u64> {
        self.offset.checked_add(u64::from(self.pitch).checked_mul(self.rows.into())?)
    }
}

/// A frame geometry that does not hold together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MetaError {
    /// A format that version 1 does not have.
    UnknownFormat(Format),
    /// A width or height of zero.
    Zero {
        /// The field.
        field: &'static str,
    },
    /// More than one row of [`Format::BYTES`].
    BytesHeight {
        /// The height.
        height: u32,
    },
    /// Rows that overlap.
    Pitch {
        /// The field.
        field: &'static str,
        /// The pitch.
        pitch: u32,
        /// Bytes of a row.
        row_bytes: u32,
    },
    /// A frame size that is smaller than its planes.
    FrameSize {
        /// The size.
        size: u64,
        /// The size needed.
        needed: u64,
    },
    /// A size that does not fit its field.
    Overflow {
        /// The field.
        field: &'static str,
    },
}

impl MetaError {
    /// The same as a fault of a peer.
    #[must_use]
    pub const fn violation(self, place: Place) -> Violation {
        #[expect(clippy::as_conversions, reason = "widens; `From` is not const")]
        let (field, problem) = match self {
            Self::UnknownFormat(format) => ("format", Problem::Value { value: format.0 as u64 }),
            Self::Zero { field } => (field, Problem::Value { value: 0 }),
            Self::BytesHeight { height } => {
                ("height", Problem::Mismatch { found: height as u64, expected: 1 })
            }
            Self::Pitch { field, pitch, .. } => (field, Problem::Value { value: pitch as u64 }),
            Self::FrameSize { size, .. } => ("frame_size_bytes", Problem::Value { value: size }),
            Self::Overflow { field } => (field, Problem::Value { value: u64::MAX }),
        };
        Violation { place, field, problem }
    }
}

impl fmt::Display for MetaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UnknownFormat(format) => write!(f, "format {format} is unknown"),
            Self::Zero { field } => write!(f, "{field} is 0; it must be at least 1"),
            Self::BytesHeight { height } => write!(f, "height is {height}; it must be 1 for format bytes"),
            Self::Pitch { field, pitch, row_bytes } => {
                write!(f, "{field} is {pitch}; it must be at least the {row_bytes} bytes of a row")
            }
            Self::FrameSize { size, needed } => {
                write!(f, "frame_size_bytes is {size}; the planes need {needed}")
            }
            Self::Overflow { field } => write!(f, "{field} is too large; use a smaller frame"),
        }
    }
}

impl core::error::Error for MetaError {}

/// The bytes of §2.1.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawMeta {
    format: U32,
    width: U32,
    height: U32,
    pitch_y: U32,
    pitch_uv: U32,
    bits_per_pixel: U32,
    frame_size_bytes: U64,
    reserved: [u8; 32],
}

const _: () = assert!(size_of::<RawMeta>() == 64);

/// Pitches in our memory are multiples of this (D-18).
const PITCH_ALIGNMENT: u64 = 256;
