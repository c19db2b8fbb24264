//! Parts of frames: tiles and what they cover of the planes of the 13 formats.

use std::collections::BTreeMap;

use cuframes_core::wire::meta::Plane;
use cuframes_core::{Format, FrameMeta, Tile, TileError};
use cuframes_testkit::strategies::config;
use proptest::prelude::*;

/// Offset, pitch, bytes of a row, rows.
type Part = (u64, u32, u32, u32);

const CHROMA: [Format; 3] = [Format::NV12, Format::P010, Format::I420];

fn tile(y: u32, x: u32, height: u32, width: u32) -> Tile {
    Tile { y, x, height, width }
}

fn parts(meta: &FrameMeta, tile: Tile) -> Result<Vec<Part>, TileError> {
    let parts = meta.tile_planes(&tile)?;
    Ok(parts.map(|Plane { offset, pitch, row_bytes, rows }| (offset, pitch, row_bytes, rows)).collect())
}

#[test]
fn a_tile_covers_its_part_of_each_plane() {
    let all = tile(2, 4, 2, 2);
    let expected: [(Format, &[Part]); 13] = [
        (Format::NV12, &[(516, 256, 2, 2), (1796, 256, 2, 1)]),
        (Format::P010, &[(520, 256, 4, 2), (1800, 256, 4, 1)]),
        (Format::I420, &[(516, 256, 2, 2), (1794, 256, 1, 1), (2562, 256, 1, 1)]),
        (Format::I444, &[(516, 256, 2, 2), (2052, 256, 2, 2), (3588, 256, 2, 2)]),
        (Format::RGB24, &[(524, 256, 6, 2)]),
        (Format::BGR24, &[(524, 256, 6, 2)]),
        (Format::RGBA32, &[(528, 256, 8, 2)]),
        (Format::BGRA32, &[(528, 256, 8, 2)]),
        (Format::GRAY8, &[(516, 256, 2, 2)]),
        (Format::GRAY16, &[(520, 256, 4, 2)]),
        (Format::RGB_F32_PLANAR, &[(528, 256, 8, 2), (2064, 256, 8, 2), (3600, 256, 8, 2)]),
        (Format::RGB_F16_PLANAR, &[(520, 256, 4, 2), (2056, 256, 4, 2), (3592, 256, 4, 2)]),
        (Format::BYTES, &[(4, 256, 2, 1)]),
    ];
    assert_eq!(expected.map(|(format, _)| format), Format::ALL);
    for (format, expected) in expected {
        let (height, tile) = if format == Format::BYTES { (1, tile(0, 4, 1, 2)) } else { (6, all) };
        let meta = FrameMeta::new(format, 8, height).unwrap();
        assert_eq!(parts(&meta, tile).as_deref(), Ok(expected), "{format}");
    }
}

#[test]
fn a_frame_of_odd_size_has_its_last_chroma_samples_in_the_tiles_at_its_edges() {
    let meta = FrameMeta::new(Format::NV12, 5, 3).unwrap();
    assert_eq!(parts(&meta, tile(2, 4, 1, 1)), Ok(vec![(516, 256, 1, 1), (1028, 256, 2, 1)]));
    assert_eq!(parts(&meta, tile(0, 0, 3, 5)), Ok(vec![(0, 256, 5, 3), (768, 256, 6, 2)]));
}

#[test]
fn a_tile_that_cuts_a_chroma_sample_in_two_is_refused_with_its_axis_where_there_is_one() {
    let odd = [
        (tile(1, 0, 2, 2), "y"),
        (tile(0, 3, 2, 2), "x"),
        (tile(0, 0, 3, 2), "y"),
        (tile(0, 0, 2, 1), "x"),
        (tile(5, 0, 1, 2), "y"),
        (tile(0, 5, 2, 3), "x"),
    ];
    for format in Format::ALL.into_iter().filter(|format| *format != Format::BYTES) {
        let meta = FrameMeta::new(format, 8, 6).unwrap();
        for (tile, axis) in odd {
            let refused = CHROMA.contains(&format).then_some(TileError::Chroma { axis });
            assert_eq!(meta.tile_planes(&tile).err(), refused, "{format} {tile:?}");
        }
        for (height, width, axis) in [(3, 2, "y"), (2, 7, "x"), (1, 1, "y")] {
            let refused = CHROMA.contains(&format).then_some(TileError::Chroma { axis });
            assert_eq!(meta.tiles(height, width).err(), refused, "{format} {height} {width}");
        }
        // Odd, but there is one along that axis.
        assert_eq!(meta.tiles(7, 9).unwrap().iter().collect::<Vec<_>>(), [tile(0, 0, 6, 8)]);
    }
    let odd = FrameMeta::new(Format::I420, 7, 5).unwrap();
    assert_eq!(odd.tiles(5, 7).unwrap().len(), 1);
    assert_eq!(odd.tiles(3, 7).err(), Some(TileError::Chroma { axis: "y" }));
}

#[test]
fn a_tile_without_extent_or_beyond_the_frame_is_refused() {
    for format in [Format::NV12, Format::GRAY8, Format::RGB_F32_PLANAR, Format(99)] {
        let meta = FrameMeta { format, ..FrameMeta::new(Format::I444, 8, 6).unwrap() };
        for empty in [tile(0, 0, 0, 2), tile(0, 0, 2, 0), tile(6, 8, 0, 0)] {
            assert_eq!(meta.tile_planes(&empty).err(), Some(TileError::Empty), "{format} {empty:?}");
        }
        for outside in [
            tile(6, 0, 2, 2),
            tile(0, 8, 2, 2),
            tile(4, 0, 4, 2),
            tile(0, 0, 2, 10),
            tile(u32::MAX - 1, 0, 2, 2),
            tile(2, 0, u32::MAX - 1, 2),
        ] {
            assert_eq!(meta.tile_planes(&outside).err(), Some(TileError::Outside), "{format} {outside:?}");
        }
        for (height, width) in [(0, 2), (2, 0), (0, 0)] {
            assert_eq!(meta.tiles(height, width), Err(TileError::Empty));
        }
    }
    let unknown = FrameMeta { format: Format(99), ..FrameMeta::new(Format::GRAY8, 8, 6).unwrap() };
    assert_eq!(parts(&unknown, tile(1, 1, 1, 1)), Ok(vec![]));
}

#[test]
fn tiles_are_counted_along_the_rows_and_end_where_the_frame_does() {
    let tiles = FrameMeta::new(Format::GRAY8, 7, 5).unwrap().tiles(2, 3).unwrap();
    assert_eq!((tiles.len(), tiles.is_empty()), (9, false));
    let expected = [(0, 2), (2, 2), (4, 1)]
        .into_iter()
        .flat_map(|(y, height)| [(0, 3), (3, 3), (6, 1)].map(|(x, width)| tile(y, x, height, width)));
    assert_eq!(tiles.iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert_eq!((tiles.get(5), tiles.get(9), tiles.get(u64::MAX)), (Some(tile(2, 6, 2, 1)), None, None));
    // As many as there can be.
    let meta =
        FrameMeta { width: u32::MAX, height: u32::MAX, ..FrameMeta::new(Format::GRAY8, 1, 1).unwrap() };
    let tiles = meta.tiles(1, 1).unwrap();
    assert_eq!(tiles.len(), u64::from(u32::MAX) * u64::from(u32::MAX));
    assert_eq!(tiles.get(tiles.len() - 1), Some(tile(u32::MAX - 1, u32::MAX - 1, 1, 1)));
    assert_eq!(tiles.get(tiles.len()), None);
    // A frame without extent, which is none.
    let none = FrameMeta { width: 0, height: 3, ..meta }.tiles(1, 1).unwrap();
    assert_eq!((none.len(), none.is_empty(), none.get(0), none.iter().next()), (0, true, None, None));
}

/// How often each byte is in a row.
fn cover<'a>(planes: impl Iterator<Item = &'a Plane>) -> BTreeMap<u64, u32> {
    let mut cover = BTreeMap::new();
    for plane in planes {
        for row in 0..u64::from(plane.rows) {
            let from = plane.offset + row * u64::from(plane.pitch);
            (from..from + u64::from(plane.row_bytes)).for_each(|byte| *cover.entry(byte).or_default() += 1);
        }
    }
    cover
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn tiles_cover_every_byte_of_every_row_once_and_nothing_else(
        format in 0..13_usize, size in [1..40_u32, 1..40_u32], padding in [0..9_u32, 0..9_u32],
        (height, width) in (1..44_u32, 1..44_u32),
    ) {
        let format = Format::ALL[format];
        let rows = if format == Format::BYTES { 1 } else { size[0] };
        let aligned = FrameMeta::new(format, size[1], rows).unwrap();
        let planes: Vec<Plane> = aligned.planes().collect();
        let pitch = |plane: usize| planes.get(plane).map_or(0, |plane| plane.row_bytes) + padding[plane];
        let meta = FrameMeta::with_pitches(format, size[1], rows, pitch(0), pitch(1)).unwrap();
        let tiles = match meta.tiles(height, width) {
            Ok(tiles) => tiles,
            Err(error) => {
                let is_odd = |len, frame| len % 2 == 1 && len < frame;
                let axis = if is_odd(height, rows) { "y" } else { "x" };
                prop_assert!(CHROMA.contains(&format) && (is_odd(height, rows) || is_odd(width, size[1])));
                prop_assert_eq!(error, TileError::Chroma { axis });
                meta.tiles(height.next_multiple_of(2), width.next_multiple_of(2)).unwrap()
            }
        };
        // Plane by plane: what is of the second may not be taken from the first.
        for (number, plane) in meta.planes().enumerate() {
            let parts: Vec<Plane> =
                tiles.iter().map(|tile| meta.tile_planes(&tile).unwrap().nth(number).unwrap()).collect();
            prop_assert_eq!(cover(parts.iter()), cover([plane].iter()));
            prop_assert!(parts.iter().all(|part| part.pitch == plane.pitch));
        }
        prop_assert_eq!(u64::try_from(tiles.iter().count()).unwrap(), tiles.len());
    }

    #[test]
    fn whatever_a_peer_sends_tiles_are_refused_or_lie_in_the_frame(
        format in 0..=14_u32, size in any::<[u32; 4]>(), small in any::<[u8; 4]>(), use_small: bool,
        at in any::<[u32; 4]>(), near in any::<[u8; 4]>(), use_near: bool, n in any::<u64>(),
    ) {
        let [width, height, pitch_y, pitch_uv] = if use_small { small.map(u32::from) } else { size };
        let format = Format(format);
        let mut meta = FrameMeta { format, width, height, pitch_y, pitch_uv, bits_per_pixel: 0, frame_size_bytes: u64::MAX };
        if let Ok(valid) = FrameMeta::with_pitches(format, width, height, pitch_y, pitch_uv) {
            meta = valid;
        }
        let [y, x, height, width] = if use_near { near.map(u32::from) } else { at };
        if let Ok(parts) = meta.tile_planes(&tile(y, x, height, width)) {
            let parts: Vec<Plane> = parts.collect();
            prop_assert_eq!(parts.len(), meta.planes().count());
            if meta.validate().is_ok() {
                for (part, plane) in parts.iter().zip(meta.planes()) {
                    let last = |plane: &Plane| {
                        plane.offset + u64::from(plane.pitch) * u64::from(plane.rows - 1) + u64::from(plane.row_bytes)
                    };
                    prop_assert!(part.rows > 0 && part.row_bytes > 0 && part.row_bytes <= part.pitch);
                    prop_assert!(part.offset >= plane.offset && last(part) <= last(&plane));
                }
            }
        }
        if let Ok(tiles) = meta.tiles(height, width) {
            prop_assert_eq!(tiles.get(n).is_some(), n < tiles.len());
            let last = tiles.len().checked_sub(1).and_then(|last| tiles.get(last));
            prop_assert_eq!(last.map(|tile| (tile.y + tile.height, tile.x + tile.width)),
                (!tiles.is_empty()).then_some((meta.height, meta.width)));
        }
    }
}
