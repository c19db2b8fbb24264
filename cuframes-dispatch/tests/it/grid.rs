//! The numbers of blocks, and how a box is cut into them.

use cuframes_dispatch::wire::{Block, Roi, Status};
use cuframes_dispatch::{Fit, Grid, GridError, spatial_id};

/// The number of the block at this place of a grid that begins at `from`, of blocks of this extent.
fn number(place: &[i64], from: i64, len: i64) -> u64 {
    let offset: Vec<i64> = place.iter().map(|place| from + place * len).collect();
    let roi = |offset: &[i64]| Roi::new(offset, &vec![len; place.len()]);
    spatial_id(&roi(&vec![from; place.len()]), &roi(&offset))
}

#[test]
fn numbers_of_blocks_are_those_of_the_original() {
    let expected: [(&[i64], u64); 9] = [
        (&[2, 2], 12),
        (&[2, 4], 23),
        (&[4, 2], 25),
        (&[4, 4], 40),
        (&[1, 0, 0], 3),
        (&[0, 0, 0], 0),
        (&[7], 7),
        (&[0, 1], 1),
        (&[1, 0], 2),
    ];
    for (place, expected) in expected {
        for (from, len) in [(0, 10), (-35, 10), (1000, 1)] {
            assert_eq!(number(place, from, len), expected, "{place:?}");
        }
    }
}

#[test]
fn each_place_has_a_number_of_its_own_and_small_ones_come_first() {
    // As many as there are with a sum below 8 on three axes: 8 9 10 / 6.
    let mut numbers: Vec<u64> = (0..8)
        .flat_map(|x| (0..8 - x).flat_map(move |y| (0..8 - x - y).map(move |z| number(&[x, y, z], 5, 3))))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..120).collect::<Vec<_>>());
}

#[test]
fn a_block_between_two_places_has_the_number_of_the_one_before_and_one_before_the_box_that_of_the_first() {
    let id = |offset| spatial_id(&Roi::new(&[100], &[50]), &Roi::new(&[offset], &[10]));
    assert_eq!([id(129), id(130), id(99), id(i64::MIN)], [2, 3, 0, 0]);
}

#[test]
fn numbers_at_the_ends_of_the_numbers() {
    let whole = Roi::new(&[i64::MIN], &[i64::MAX]);
    assert_eq!(spatial_id(&whole, &Roi::new(&[i64::MAX], &[1])), u64::MAX);
    assert_eq!(spatial_id(&whole, &Roi::new(&[i64::MAX], &[2])), u64::MAX / 2);
    assert_eq!(spatial_id(&whole, &Roi::new(&[0], &[i64::MAX])), 1);
    // Extents that can't be do not divide by zero.
    for len in [0, -1, i64::MIN] {
        assert_eq!(spatial_id(&whole, &Roi::new(&[i64::MIN + 3], &[len])), 3);
    }
    // What does not fit is the largest there is.
    let whole = Roi::new(&[i64::MIN; 64], &[i64::MAX; 64]);
    assert_eq!(spatial_id(&whole, &Roi::new(&[i64::MAX; 64], &[1; 64])), u64::MAX);
    assert_eq!(spatial_id(&Roi::default(), &Roi::default()), 0);
    // The largest square whose numbers fit, by the formula for two axes.
    let (x, y) = (3_000_000_000_i64, 3_000_000_000_i64);
    assert_eq!(number(&[x, y], 0, 1), 3_000_000_000_u64 * 6_000_000_001 + 3_000_000_000);
}

/// A box of one axis: where it begins, and how large it is.
type Side = (i64, i64);

fn cut(total: Side, read: Side, write: Side, fit: Fit) -> Result<Grid, GridError> {
    let roi = |(offset, shape): Side| Roi::new(&[offset], &[shape]);
    Grid::new(roi(total), roi(read), roi(write), fit)
}

/// Where the blocks of one axis read and write, and their numbers.
fn places(grid: &Grid) -> Vec<(Side, Side, u64)> {
    let side = |roi: &Roi| (roi.offset[0], roi.shape[0]);
    let blocks: Vec<Block> = grid.blocks("t").collect();
    assert_eq!(u64::try_from(blocks.len()).unwrap(), grid.len());
    assert_eq!(blocks.is_empty(), grid.is_empty());
    for block in &blocks {
        assert_eq!((&block.block_id.task_id[..], block.status, block.stats), ("t", Status::Created, None));
    }
    blocks.iter().map(|b| (side(&b.read_roi), side(&b.write_roi), b.block_id.spatial_id)).collect()
}

#[test]
fn whole_blocks_come_first_and_the_rest_is_left_out_or_goes_over_or_is_cut() {
    // 100 to 125 is read; a margin of 2 before and 1 after is not written: 102 to 124.
    let grid = |fit| places(&cut((100, 25), (-2, 13), (0, 10), fit).unwrap());
    let whole = [((100, 13), (102, 10), 0), ((110, 13), (112, 10), 1)];
    assert_eq!(grid(Fit::Valid), whole);
    assert_eq!(grid(Fit::Overhang), [&whole[..], &[((120, 13), (122, 10), 2)]].concat());
    assert_eq!(grid(Fit::Shrink), [&whole[..], &[((120, 5), (122, 2), 2)]].concat());
    // Nothing is left.
    for fit in [Fit::Valid, Fit::Overhang, Fit::Shrink] {
        assert_eq!(places(&cut((100, 23), (-2, 13), (0, 10), fit).unwrap()), whole);
        // Margins alone.
        assert!(cut((100, 3), (-2, 13), (0, 10), fit).unwrap().is_empty());
        assert!(cut((100, 1), (-2, 13), (0, 10), fit).unwrap().is_empty());
    }
    // Not one whole block.
    assert!(cut((100, 9), (-2, 13), (0, 10), Fit::Valid).unwrap().is_empty());
    let one = |fit| places(&cut((100, 9), (-2, 13), (0, 10), fit).unwrap());
    assert_eq!(one(Fit::Overhang), [((100, 13), (102, 10), 0)]);
    assert_eq!(one(Fit::Shrink), [((100, 9), (102, 6), 0)]);
}

#[test]
fn the_last_axis_is_fastest() {
    let grid = Grid::new(
        Roi::new(&[0, -10, 5], &[3, 20, 30]),
        Roi::new(&[0, 0, 0], &[1, 10, 10]),
        Roi::new(&[0, 0, 0], &[1, 10, 10]),
        Fit::Valid,
    )
    .unwrap();
    assert_eq!(grid.len(), 18);
    let blocks: Vec<Block> = grid.blocks("t").collect();
    let offsets: Vec<&[i64]> = blocks.iter().map(|block| &block.write_roi.offset[..]).collect();
    assert_eq!(offsets[..4], [[0, -10, 5], [0, -10, 15], [0, -10, 25], [0, 0, 5]]);
    assert_eq!(offsets[17], [2, 0, 25]);
    let mut numbers: Vec<u64> = blocks.iter().map(|block| block.block_id.spatial_id).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 18);
}

#[test]
fn boxes_that_do_not_go_together_are_refused() {
    let ok = (0, 10);
    for (total, read, write, error) in [
        ((0, 0), ok, ok, GridError::Extent { axis: 0 }),
        (ok, (0, -1), ok, GridError::Extent { axis: 0 }),
        (ok, ok, (0, 0), GridError::Extent { axis: 0 }),
        ((i64::MAX, 1), ok, ok, GridError::Extent { axis: 0 }),
        (ok, ok, (i64::MAX - 3, 4), GridError::Extent { axis: 0 }),
        (ok, ok, (1, 10), GridError::Outside { axis: 0 }),
        (ok, ok, (-1, 5), GridError::Outside { axis: 0 }),
    ] {
        assert_eq!(cut(total, read, write, Fit::Valid).unwrap_err(), error, "{total:?} {read:?} {write:?}");
        assert!(!error.to_string().is_empty());
    }
    let roi = |axes| Roi::new(&vec![0; axes], &vec![10; axes]);
    assert_eq!(Grid::new(roi(0), roi(0), roi(0), Fit::Valid), Err(GridError::Axes));
    assert_eq!(Grid::new(roi(2), roi(1), roi(2), Fit::Valid), Err(GridError::Axes));
    assert_eq!(Grid::new(Roi::new(&[0], &[1, 1]), roi(1), roi(1), Fit::Valid), Err(GridError::Axes));
    let second = Grid::new(roi(2), roi(2), Roi::new(&[0, 5], &[10, 6]), Fit::Valid);
    assert_eq!(second, Err(GridError::Outside { axis: 1 }));
    let many = Grid::new(
        Roi::new(&[0; 2], &[1 << 32; 2]),
        Roi::new(&[0; 2], &[1; 2]),
        Roi::new(&[0; 2], &[1; 2]),
        Fit::Valid,
    );
    assert_eq!(many, Err(GridError::TooMany));
}

#[test]
fn grids_at_the_ends_of_the_numbers_are_cut_like_any_other() {
    // The last block would go beyond the end of all numbers.
    let last = cut((i64::MAX - 10, 10), (0, 4), (0, 4), Fit::Shrink).unwrap();
    let blocks = [(i64::MAX - 10, 4), (i64::MAX - 6, 4), (i64::MAX - 2, 2)];
    let expected: Vec<_> = blocks.into_iter().zip(0..).map(|(side, id)| (side, side, id)).collect();
    assert_eq!(places(&last), expected);
    assert_eq!(places(&cut((i64::MAX - 10, 10), (0, 4), (0, 4), Fit::Valid).unwrap()), expected[..2]);
    let over = cut((i64::MAX - 10, 10), (0, 4), (0, 4), Fit::Overhang);
    assert_eq!(over.unwrap_err(), GridError::Extent { axis: 0 });
    // Where the block is said to be does not matter.
    for offset in [-100, i64::MIN, 0, i64::MAX - 4] {
        let far = cut((i64::MAX - 10, 10), (offset, 4), (offset, 4), Fit::Shrink).unwrap();
        assert_eq!(places(&far), expected);
        let first = cut((i64::MIN, 8), (offset, 4), (offset, 4), Fit::Valid).unwrap();
        let blocks = [(i64::MIN, 4), (i64::MIN + 4, 4)];
        let expected: Vec<_> = blocks.into_iter().zip(0..).map(|(side, id)| (side, side, id)).collect();
        assert_eq!(places(&first), expected);
    }
    // As much as there can be.
    let all = cut((i64::MIN, i64::MAX), (0, i64::MAX), (0, i64::MAX), Fit::Shrink).unwrap();
    assert_eq!(places(&all), [((i64::MIN, i64::MAX), (i64::MIN, i64::MAX), 0)]);
    let ones = cut((i64::MIN, i64::MAX), (0, 1), (0, 1), Fit::Valid).unwrap();
    assert_eq!(ones.len(), i64::MAX.cast_unsigned());
    assert_eq!(ones.blocks("t").nth(1).unwrap().write_roi.offset, [i64::MIN + 1]);
    // Margins as wide as that.
    let margins = cut((0, i64::MAX), (i64::MIN, i64::MAX), (-3, 1), Fit::Valid).unwrap();
    let at = i64::MAX - 2;
    assert_eq!(places(&margins), [((0, i64::MAX), (at, 1), at.cast_unsigned())]);
}
