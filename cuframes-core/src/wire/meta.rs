//! Frame geometry (§2.1): [`FrameMeta`] and the planes of the 13 formats.

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

/// Geometry of every frame of a stream (§2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameMeta {
    /// Pixel format.
    pub format: Format,
    /// Width in pixels (bytes for [`Format::BYTES`]).
    pub width: u32,
    /// Height in rows.
    pub height: u32,
    /// Bytes from one row of the first plane to the next.
    pub pitch_y: u32,
    /// Bytes from one row of a further plane to the next; 0 where there is none.
    pub pitch_uv: u32,
    /// Bits per pixel, informative.
    pub bits_per_pixel: u32,
    /// Bytes of a whole frame, all planes.
    pub frame_size_bytes: u64,
}
