//! Frame geometry of the 13 formats (§2.1, D-18).

use cuframes_core::wire::meta::{MetaError, Plane};
use cuframes_core::{Format, FrameMeta};
use cuframes_testkit::strategies::config;
use proptest::prelude::*;

/// Offset, pitch, bytes of a row, rows.
type Row = (u64, u32, u32, u32);

fn planes(meta: &FrameMeta) -> Vec<Row> {
    meta.planes().map(|Plane { offset, pitch, row_bytes, rows }| (offset, pitch, row_bytes, rows)).collect()
}

#[test]
fn every_format_has_the_planes_that_the_document_gives_it() {
    // 5 x 3: chroma rounds up.
    let expected: [(Format, u32, &[Row]); 13] = [
        (Format::NV12, 12, &[(0, 256, 5, 3), (768, 256, 6, 2)]),
        (Format::P010, 24, &[(0, 256, 10, 3), (768, 256, 12, 2)]),
        (Format::I420, 12, &[(0, 256, 5, 3), (768, 256, 3, 2), (1280, 256, 3, 2)]),
        (Format::I444, 24, &[(0, 256, 5, 3), (768, 256, 5, 3), (1536, 256, 5, 3)]),
        (Format::RGB24, 24, &[(0, 256, 15, 3)]),
        (Format::BGR24, 24, &[(0, 256, 15, 3)]),
        (Format::RGBA32, 32, &[(0, 256, 20, 3)]),
        (Format::BGRA32, 32, &[(0, 256, 20, 3)]),
        (Format::GRAY8, 8, &[(0, 256, 5, 3)]),
        (Format::GRAY16, 16, &[(0, 256, 10, 3)]),
        (Format::RGB_F32_PLANAR, 96, &[(0, 256, 20, 3), (768, 256, 20, 3), (1536, 256, 20, 3)]),
        (Format::RGB_F16_PLANAR, 48, &[(0, 256, 10, 3), (768, 256, 10, 3), (1536, 256, 10, 3)]),
        (Format::BYTES, 8, &[(0, 256, 5, 1)]),
    ];
    assert_eq!(expected.map(|(format, ..)| format), Format::ALL);
    for (format, bits, layout) in expected {
        let meta = FrameMeta::new(format, 5, if format == Format::BYTES { 1 } else { 3 }).unwrap();
        assert_eq!(meta.bits_per_pixel, bits, "{format}");
        assert_eq!(planes(&meta), layout, "{format}");
        let (offset, pitch, _, rows) = layout[layout.len() - 1];
        assert_eq!(meta.frame_size_bytes, offset + u64::from(pitch * rows), "{format}");
        assert_eq!(meta.validate(), Ok(()), "{format}");
        assert_eq!(FrameMeta::from_bytes(&meta.to_bytes()), meta, "{format}");
        assert_eq!(format.to_string().parse(), Ok(format));
    }
}

#[test]
fn a_full_hd_nv12_frame_has_a_pitch_of_2048() {
    let meta = FrameMeta::new(Format::NV12, 1920, 1080).unwrap();
    assert_eq!((meta.pitch_y, meta.pitch_uv, meta.frame_size_bytes), (2048, 2048, 2048 * 1620));
}

#[test]
fn tight_pitches_are_fine_and_smaller_ones_are_not() {
    let tight = FrameMeta::with_pitches(Format::I420, 5, 3, 5, 3).unwrap();
    assert_eq!(tight.frame_size_bytes, 15 + 6 + 6);
    let pitch = |y, uv| FrameMeta::with_pitches(Format::I420, 5, 3, y, uv).unwrap_err();
    assert_eq!(pitch(4, 3), MetaError::Pitch { field: "pitch_y", pitch: 4, row_bytes: 5 });
    assert_eq!(pitch(5, 2), MetaError::Pitch { field: "pitch_uv", pitch: 2, row_bytes: 3 });
}

#[test]
fn sizes_that_are_zero_or_too_large_are_refused_with_their_field() {
    for format in Format::ALL {
        assert_eq!(FrameMeta::new(format, 0, 1), Err(MetaError::Zero { field: "width" }), "{format}");
        assert_eq!(FrameMeta::new(format, 1, 0), Err(MetaError::Zero { field: "height" }), "{format}");
        let too_wide = FrameMeta::new(format, u32::MAX, 1);
        assert_eq!(too_wide, Err(MetaError::Overflow { field: "width" }), "{format}");
    }
    let huge = FrameMeta::new(Format::RGBA32, 1 << 29, u32::MAX).unwrap();
    assert_eq!(huge.frame_size_bytes, (1 << 31) * u64::from(u32::MAX));
    let overflow = FrameMeta::new(Format::RGB_F32_PLANAR, 1 << 29, u32::MAX);
    assert_eq!(overflow, Err(MetaError::Overflow { field: "frame_size_bytes" }));
    let rows = FrameMeta::new(Format::BYTES, 10, 2);
    assert_eq!(rows, Err(MetaError::BytesHeight { height: 2 }));
    assert_eq!(FrameMeta::new(Format(99), 1, 1), Err(MetaError::UnknownFormat(Format(99))));
}

#[test]
fn a_frame_size_may_leave_out_the_last_rows_padding_and_nothing_else() {
    let mut meta = FrameMeta::new(Format::NV12, 640, 480).unwrap();
    meta.frame_size_bytes -= u64::from(meta.pitch_uv) - 640;
    assert_eq!(meta.validate(), Ok(()));
    meta.frame_size_bytes -= 1;
    let needed = meta.frame_size_bytes + 1;
    assert_eq!(meta.validate(), Err(MetaError::FrameSize { size: needed - 1, needed }));
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn whatever_a_peer_sends_planes_never_overflow_and_valid_ones_lie_in_the_frame(
        format in 0..=14_u32, size in any::<[u32; 4]>(), small in any::<[u16; 4]>(), frame_size in any::<u64>(),
        use_small: bool,
    ) {
        let [width, height, pitch_y, pitch_uv] = if use_small { small.map(u32::from) } else { size };
        let format = Format(format);
        let meta = FrameMeta {
            format, width, height, pitch_y, pitch_uv, bits_per_pixel: 0, frame_size_bytes: frame_size,
        };
        let planes: Vec<Plane> = meta.planes().collect();
        if meta.validate().is_ok() {
            let mut free = 0;
            for plane in planes {
                prop_assert!(plane.offset >= free, "planes do not overlap");
                free = plane.offset + u64::from(plane.pitch) * u64::from(plane.rows - 1) + u64::from(plane.row_bytes);
            }
            prop_assert!(free <= frame_size);
        }
    }
}
