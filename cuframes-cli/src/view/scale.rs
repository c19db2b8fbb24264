//! [`Scaler`]: makes a picture of any size from a larger or smaller one, row by row, by averaging areas.

/// A small picture.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Grid {
    /// 0 only if there are no pixels.
    pub(crate) width: u32,
    pub(crate) pixels: Vec<Colour>,
}

/// Red, green and blue.
pub(crate) type Colour = [u8; 3];

impl Grid {
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[Colour]> {
        self.pixels.chunks(index(self.width.max(1)))
    }
}

/// The largest size with the proportions of `size` that fits into `room`, of at most 65535 pixels a side; each side is at least 1. The height is even
/// where there is room for 2, because two pixels share a character.
pub(crate) fn fit(size: (u32, u32), room: (u32, u32)) -> (u32, u32) {
    let ((width, height), (columns, rows)) = (size, room);
    let share = |part: u32, whole: u32, room: u32| {
        let (part, whole) = (u64::from(part), u64::from(whole.max(1)));
        let nearest = (2 * part * u64::from(room) + whole) / (2 * whole);
        u32::try_from(nearest).unwrap_or(u32::MAX)
    };
    // As wide as there is room, or as high.
    let high = share(height, width, columns);
    let (columns, rows) = if high <= rows { (columns, high) } else { (share(width, height, rows), rows) };
    (columns.max(1), rows.max(1).next_multiple_of(2).min(room.1).max(1))
}

/// Takes the rows of a picture from the top, and averages what falls on each pixel of the small one. Pixels on the edge
/// of two share in both.
#[derive(Debug)]
pub(crate) struct Scaler {
    from: (u32, u32),
    to: (u32, u32),
    /// Sums of the row that is being made: of each colour, weighted by area.
    sums: Vec<[u64; 3]>,
    /// One row of the picture, averaged over columns only.
    narrow: Vec<[u64; 3]>,
    /// What the row that is being made still lacks, in units of a row's share.
    lacking: u64,
    grid: Grid,
}

impl Scaler {
    /// Both sizes are at least 1x1.
    pub(crate) fn new(from: (u32, u32), to: (u32, u32)) -> Self {
        let row = vec![[0; 3]; index(to.0)];
        let grid = Grid { width: to.0, pixels: Vec::new() };
        Self { from, to, sums: row.clone(), narrow: row, lacking: from.1.into(), grid }
    }

    /// The next row.
    pub(crate) fn push(&mut self, row: impl Iterator<Item = Colour>) {
        let Self { from, to, sums, narrow, lacking, grid } = self;
        squeeze(row, from.0, to.0, narrow);
        // Every row has as many units as there are small rows, and a small row needs as many as there are rows.
        let mut units = u64::from(to.1);
        while units > 0 {
            let part = units.min(*lacking);
            for (sum, value) in sums.iter_mut().zip(&*narrow) {
                add(sum, *value, part);
            }
            units -= part;
            *lacking -= part;
            if *lacking == 0 {
                *lacking = from.1.into();
                let area = u64::from(from.0) * u64::from(from.1);
                grid.pixels
                    .extend(sums.iter_mut().map(|sum| std::mem::take(sum).map(|sum| average(sum, area))));
            }
        }
    }

    pub(crate) fn finish(self) -> Grid {
        self.grid
    }
}

/// Averages a row of `from` pixels to `to` sums, each of which has the weight `from`.
fn squeeze(row: impl Iterator<Item = Colour>, from: u32, to: u32, sums: &mut [[u64; 3]]) {
    sums.fill([0; 3]);
    let mut sums = sums.iter_mut();
    let mut sum = sums.next();
    let mut lacking = from;
    for pixel in row {
        let pixel = pixel.map(u64::from);
        let mut units = to;
        while let Some(to) = sum.as_deref_mut().filter(|_| units > 0) {
            let part = units.min(lacking);
            add(to, pixel, part.into());
            units -= part;
            lacking -= part;
            if lacking == 0 {
                lacking = from;
                sum = sums.next();
            }
        }
    }
}

fn add(sum: &mut [u64; 3], value: [u64; 3], weight: u64) {
    for (sum, value) in sum.iter_mut().zip(value) {
        *sum += value * weight;
    }
}

/// Of a sum whose weights are `area` together, rounded.
fn average(sum: u64, area: u64) -> u8 {
    u8::try_from((2 * sum + area) / (2 * area)).unwrap_or(u8::MAX)
}

fn index(n: u32) -> usize {
    n.try_into().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(from: (u32, u32), to: (u32, u32), pixels: &[Colour]) -> Vec<Colour> {
        let mut scaler = Scaler::new(from, to);
        pixels.chunks(index(from.0)).for_each(|row| scaler.push(row.iter().copied()));
        scaler.finish().pixels
    }

    fn greys(values: &[u8]) -> Vec<Colour> {
        values.iter().map(|value| [*value; 3]).collect()
    }

    #[test]
    fn a_picture_keeps_its_proportions_and_fits() {
        for (size, room, fitted) in [
            ((1280, 720), (80, 46), (80, 46)),
            ((1280, 720), (200, 98), (174, 98)),
            ((1920, 800), (80, 46), (80, 34)),
            ((100, 1000), (80, 46), (5, 46)),
            ((1000, 1), (80, 46), (80, 2)),
            ((1, 1000), (80, 46), (1, 46)),
            ((4, 4), (80, 46), (46, 46)),
            ((1280, 720), (1, 2), (1, 2)),
            ((1280, 720), (80, 1), (2, 1)),
            ((u32::MAX, u32::MAX), (65535, 10), (10, 10)),
        ] {
            assert_eq!(fit(size, room), fitted, "{size:?} in {room:?}");
        }
    }

    #[test]
    fn areas_are_averaged_and_those_on_an_edge_are_shared() {
        assert_eq!(scaled((4, 2), (2, 1), &greys(&[0, 2, 100, 200, 4, 6, 0, 0])), greys(&[3, 75]));
        assert_eq!(scaled((3, 1), (2, 1), &greys(&[30, 60, 90])), greys(&[40, 80]));
        assert_eq!(scaled((1, 3), (1, 2), &greys(&[30, 60, 90])), greys(&[40, 80]));
        assert_eq!(scaled((2, 1), (3, 2), &greys(&[30, 90])), greys(&[30, 60, 90, 30, 60, 90]));
        assert_eq!(
            scaled((2, 2), (1, 1), &[[1, 0, 255], [2, 0, 255], [3, 0, 255], [4, 0, 255]]),
            [[3, 0, 255]]
        );
    }

    #[test]
    fn whatever_the_sizes_are_there_are_as_many_pixels_as_asked_for_and_one_colour_stays_itself() {
        for from in [(1, 1), (3, 5), (16, 9), (37, 11)] {
            for to in [(1, 1), (2, 7), (16, 9), (40, 23)] {
                let pixels = vec![[7, 130, 255]; index(from.0 * from.1)];
                assert_eq!(
                    scaled(from, to, &pixels),
                    vec![[7, 130, 255]; index(to.0 * to.1)],
                    "{from:?} {to:?}"
                );
            }
        }
    }

    #[test]
    fn a_row_that_is_too_short_or_too_long_does_no_harm() {
        assert_eq!(scaled((2, 1), (2, 1), &greys(&[9])), greys(&[9, 0]));
        let mut scaler = Scaler::new((2, 1), (1, 1));
        scaler.push(greys(&[9, 9, 200, 200]).into_iter());
        assert_eq!(scaler.finish().pixels, greys(&[9]));
    }
}
