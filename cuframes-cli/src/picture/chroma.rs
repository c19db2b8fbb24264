//! Chroma samples for every pixel where a frame has one for four.
//!
//! A sample lies in the middle of its four pixels, as in JPEG and MPEG-1, and as ffmpeg takes it where nothing else is
//! said. Between samples it is interpolated: from the two nearest rows and columns, 3/4 of the near and 1/4 of the far
//! one. Beyond the edge lies what is at the edge.

/// Which two of `rows` chroma rows the row `y` of luma lies between: the near one, and the far one.
pub(crate) const fn neighbours(y: u32, rows: u32) -> (u32, u32) {
    let near = y / 2;
    let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { near + 1 };
    (near, if far < rows { far } else { near })
}

/// Moves `near` to where luma is, by a quarter of the way to `far`: samples that are 4 times their value.
pub(crate) fn blend(near: &mut [i32], far: &[i32]) {
    for (near, far) in near.iter_mut().zip(far) {
        *near = 3 * *near + far;
    }
}

/// Makes two samples of each, 4 times their value.
pub(crate) fn widen(narrow: &[i32], wide: &mut Vec<i32>) {
    wide.clear();
    let mut left = narrow.first().copied().unwrap_or_default();
    let mut rest = narrow.iter().copied().peekable();
    while let Some(sample) = rest.next() {
        let right = rest.peek().copied().unwrap_or(sample);
        wide.extend([3 * sample + left, 3 * sample + right]);
        left = sample;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_lies_between_its_own_chroma_row_and_the_next_one_on_its_side() {
        let neighbours: Vec<_> = (0..6).map(|y| neighbours(y, 3)).collect();
        assert_eq!(neighbours, [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]);
        assert_eq!(super::neighbours(0, 1), (0, 0));
        assert_eq!(super::neighbours(1, 1), (0, 0));
    }

    #[test]
    fn samples_in_between_are_three_quarters_of_the_near_and_one_of_the_far() {
        let mut wide = vec![9];
        widen(&[0, 100, 20], &mut wide);
        assert_eq!(wide, [0, 100, 300, 320, 160, 80]);
        widen(&[7], &mut wide);
        assert_eq!(wide, [28, 28]);
        widen(&[], &mut wide);
        assert!(wide.is_empty());
        let mut near = [0, 100];
        blend(&mut near, &[40, 60]);
        assert_eq!(near, [40, 360]);
    }

    #[test]
    fn a_plane_of_one_colour_stays_one_colour() {
        let mut near = [77; 5];
        blend(&mut near, &[77; 5]);
        let mut wide = Vec::new();
        widen(&near, &mut wide);
        assert_eq!(wide, [77 * 16; 10]);
    }
}
