//! Copies between frames, whose rows are `pitch` bytes apart, and y4m pictures, whose planes have no gaps.

use cuframes_core::wire::meta::Plane;
use cuframes_core::{Format, FrameMeta};

/// The planes of a y4m picture: Y, U and V, or Y alone.
pub(crate) type Picture<'a> = [&'a [u8]; 3];

/// Writes a picture into a frame whose planes are the picture's own.
pub(crate) fn write_picture(meta: &FrameMeta, picture: Picture<'_>, frame: &mut [u8]) {
    for (plane, tight) in meta.planes().zip(picture) {
        for (row, tight) in rows_mut(frame, &plane).zip(tight.chunks_exact(index(plane.row_bytes))) {
            row.copy_from_slice(tight);
        }
    }
}

/// Reads the planes of a frame as those of a y4m picture, taking the interleaved UV plane of NV12 apart.
///
/// `planes` are cleared first and keep their capacity.
pub(crate) fn read_picture(meta: &FrameMeta, frame: &[u8], planes: &mut [Vec<u8>; 3]) {
    planes.iter_mut().for_each(Vec::clear);
    let [y, u, v] = planes;
    let mut source = meta.planes();
    match (meta.format, source.next(), source.next()) {
        (Format::NV12, Some(luma), Some(chroma)) => {
            rows(frame, &luma).for_each(|row| y.extend_from_slice(row));
            for [first, second] in rows(frame, &chroma).flat_map(|row| row.as_chunks::<2>().0) {
                u.push(*first);
                v.push(*second);
            }
        }
        _ => {
            for (plane, tight) in meta.planes().zip([y, u, v]) {
                rows(frame, &plane).for_each(|row| tight.extend_from_slice(row));
            }
        }
    }
}

/// The rows of a plane without their padding.
pub(crate) fn rows<'a>(frame: &'a [u8], plane: &Plane) -> impl Iterator<Item = &'a [u8]> {
    let row_bytes = index(plane.row_bytes);
    let frame = frame.get(index(plane.offset)..).unwrap_or_default();
    frame.chunks(index(plane.pitch)).take(index(plane.rows)).filter_map(move |row| row.get(..row_bytes))
}

/// The rows of a plane without their padding, to write.
pub(crate) fn rows_mut<'a>(frame: &'a mut [u8], plane: &Plane) -> impl Iterator<Item = &'a mut [u8]> {
    let row_bytes = index(plane.row_bytes);
    let frame = frame.get_mut(index(plane.offset)..).unwrap_or_default();
    frame
        .chunks_mut(index(plane.pitch))
        .take(index(plane.rows))
        .filter_map(move |row| row.get_mut(..row_bytes))
}

/// An index that is past the end of any slice if it doesn't fit.
fn index(n: impl TryInto<usize>) -> usize {
    n.try_into().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The planes of a y4m picture, every byte different from its neighbours.
    fn planes(chroma: Option<(usize, usize)>, width: usize, height: usize) -> [Vec<u8>; 3] {
        let plane = |start: u8, (width, height): (usize, usize)| -> Vec<u8> {
            (start..=u8::MAX).cycle().step_by(7).take(width * height).collect()
        };
        let chroma = chroma.map_or((0, 0), |(x, y)| (width.div_ceil(x), height.div_ceil(y)));
        [plane(1, (width, height)), plane(2, chroma), plane(3, chroma)]
    }

    fn slices(planes: &[Vec<u8>; 3]) -> Picture<'_> {
        planes.each_ref().map(Vec::as_slice)
    }

    fn empty_frame(meta: &FrameMeta) -> Vec<u8> {
        vec![0xEE; index(meta.frame_size_bytes)]
    }

    #[test]
    fn a_picture_of_any_size_comes_back_from_a_pitched_frame_byte_for_byte() {
        let formats = [(Format::I420, Some((2, 2))), (Format::I444, Some((1, 1))), (Format::GRAY8, None)];
        for (format, chroma) in formats {
            for (width, height) in
                (1..20).flat_map(|w| (1..8).map(move |h| (w, h))).chain([(257, 3), (512, 2)])
            {
                let meta = FrameMeta::new(format, width, height).unwrap();
                let picture = planes(chroma, index(width), index(height));
                let mut frame = empty_frame(&meta);
                write_picture(&meta, slices(&picture), &mut frame);
                let mut read = Default::default();
                read_picture(&meta, &frame, &mut read);
                assert_eq!(read, picture, "{format} {width}x{height}");
            }
        }
    }

    #[test]
    fn padding_is_left_alone() {
        let meta = FrameMeta::new(Format::GRAY8, 3, 2).unwrap();
        let mut frame = empty_frame(&meta);
        write_picture(&meta, [&[1, 2, 3, 4, 5, 6], &[], &[]], &mut frame);
        assert_eq!(frame.iter().filter(|byte| **byte != 0xEE).count(), 6);
        assert_eq!((&frame[..3], &frame[256..259]), (&[1, 2, 3][..], &[4, 5, 6][..]));
    }

    #[test]
    fn the_interleaved_plane_of_nv12_is_taken_apart_for_any_size() {
        for (width, height) in (1..20).flat_map(|w| (1..8).map(move |h| (w, h))) {
            let meta = FrameMeta::new(Format::NV12, width, height).unwrap();
            let picture = planes(Some((2, 2)), index(width), index(height));
            let [y, u, v] = &picture;
            let uv: Vec<u8> = u.iter().zip(v).flat_map(|(u, v)| [*u, *v]).collect();
            let mut frame = empty_frame(&meta);
            write_picture(&meta, [y, &uv, &[]], &mut frame);
            let mut read = Default::default();
            read_picture(&meta, &frame, &mut read);
            assert_eq!(read, picture, "{width}x{height}");
        }
    }

    #[test]
    fn a_frame_that_is_too_short_is_read_as_far_as_it_goes() {
        let meta = FrameMeta::new(Format::I420, 4, 4).unwrap();
        let mut read = Default::default();
        read_picture(&meta, &[7; 300], &mut read);
        assert_eq!(read.map(|plane| plane.len()), [8, 0, 0]);
    }
}
