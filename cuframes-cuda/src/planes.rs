//! [`DevicePlane`]: a plane of a frame, for kernels and codecs.

use cuframes_core::FrameMeta;

/// One plane of a frame in device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DevicePlane {
    /// Where it starts: a `CUdeviceptr`.
    pub ptr: u64,
    /// Bytes from one row to the next.
    pub pitch: u32,
    /// Bytes of a row that mean something; the rest up to `pitch` is padding.
    pub row_bytes: u32,
    /// Number of rows.
    pub rows: u32,
}

/// The planes of a frame at `base`, in the order in which they lie in memory; none for an unknown format. `meta` is what the
/// publisher says (§2.1), validated.
pub fn planes(base: u64, meta: &FrameMeta) -> impl Iterator<Item = DevicePlane> + Clone + use<> {
    meta.planes().map(move |plane| DevicePlane {
        ptr: base.saturating_add(plane.offset),
        pitch: plane.pitch,
        row_bytes: plane.row_bytes,
        rows: plane.rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuframes_core::Format;

    #[test]
    fn the_planes_of_nv12_lie_one_behind_the_other() {
        let meta = FrameMeta::new(Format::NV12, 1920, 1080).unwrap();
        let planes: Vec<_> = planes(0x7000_0000, &meta).collect();
        let luma = DevicePlane { ptr: 0x7000_0000, pitch: 2048, row_bytes: 1920, rows: 1080 };
        assert_eq!(planes, [luma, DevicePlane { ptr: luma.ptr + 2048 * 1080, rows: 540, ..luma }]);
    }
}
