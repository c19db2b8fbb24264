//! [`Canvas`]: draws pictures with characters, two pixels in each, and writes only what has changed.

use std::fmt::Write as _;

use super::scale::{Colour, Grid};

/// How many colours the terminal has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Colours {
    /// 24 bits.
    True,
    /// The cube and the greys of xterm's 256.
    Indexed,
}

impl Colours {
    /// What the value of `$COLORTERM` promises.
    pub(crate) fn promised(colorterm: Option<&str>) -> Self {
        match colorterm {
            Some("truecolor" | "24bit") => Self::True,
            _ => Self::Indexed,
        }
    }
}

/// What the terminal shows.
#[derive(Debug)]
pub(crate) struct Canvas {
    pub(crate) colours: Colours,
    /// Columns and rows of the whole terminal; the last row is for the status.
    pub(crate) size: (u32, u32),
    /// Characters that the picture is wide, and what they show.
    width: u32,
    cells: Vec<Cell>,
}

impl Canvas {
    /// A terminal that is to be cleared.
    pub(crate) const fn new(colours: Colours, size: (u32, u32)) -> Self {
        Self { colours, size, width: 0, cells: Vec::new() }
    }

    /// Pixels that there is room for: a row of characters holds two of them.
    pub(crate) const fn room(&self) -> (u32, u32) {
        (self.size.0, self.size.1.saturating_sub(1).saturating_mul(2))
    }

    /// Appends to `out` what shows the picture in the middle. It must fit into the [`room`](Self::room).
    pub(crate) fn draw(&mut self, grid: &Grid, out: &mut String) {
        let rows = grid.rows().count().div_ceil(2);
        let cells = self.cells(grid);
        if (self.width, self.cells.len()) != (grid.width, cells.len()) {
            out.push_str(CLEAR);
            self.cells.clear();
        }
        let left = self.size.0.saturating_sub(grid.width) / 2 + 1;
        let top = (self.room().1 / 2).saturating_sub(u32::try_from(rows).unwrap_or(u32::MAX)) / 2 + 1;
        let mut before = self.cells.iter();
        // Where the next character would appear, and the colours that it would have.
        let (mut cursor, mut pen) = (None, None);
        let mut place = (left, top);
        for cell in &cells {
            if before.next() != Some(cell) {
                let (column, row) = place;
                if cursor != Some(place) {
                    let _ = write!(out, "\x1b[{row};{column}H");
                }
                if pen != Some(*cell) {
                    cell.select(out);
                }
                out.push('▀');
                (cursor, pen) = (Some((column + 1, row)), Some(*cell));
            }
            place.0 += 1;
            if place.0 == left + grid.width {
                place = (left, place.1 + 1);
            }
        }
        out.push_str(PLAIN);
        (self.width, self.cells) = (grid.width, cells);
    }

    /// Appends what shows a line of text at the bottom, cut at the width of the terminal.
    pub(crate) fn status(&self, text: &str, out: &mut String) {
        let (columns, row) = self.size;
        let room = columns.try_into().unwrap_or(usize::MAX);
        let text: String = text.chars().take(room).collect();
        let _ = write!(out, "\x1b[{row};1H{PLAIN}{text}");
        // The cursor stays on the last column when that is full, and would take the character there along.
        if text.chars().count() < room {
            out.push_str("\x1b[K");
        }
    }

    fn cells(&self, grid: &Grid) -> Vec<Cell> {
        let shade = |colour: &Colour| match self.colours {
            Colours::True => Shade::Rgb(*colour),
            Colours::Indexed => Shade::Index(nearest(*colour)),
        };
        let mut cells = Vec::new();
        let mut rows = grid.rows();
        while let Some(upper) = rows.next() {
            let mut lower = rows.next().into_iter().flatten();
            cells.extend(
                upper.iter().map(|upper| Cell { upper: shade(upper), lower: lower.next().map(shade) }),
            );
        }
        cells
    }
}

/// A character: the upper half has the colour of the text, the lower one that of the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    upper: Shade,
    lower: Option<Shade>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shade {
    Rgb(Colour),
    Index(u8),
}

impl Cell {
    /// Appends what selects its colours.
    fn select(self, out: &mut String) {
        out.push_str("\x1b[38");
        self.upper.name(out);
        match self.lower {
            Some(lower) => {
                out.push_str(";48");
                lower.name(out);
            }
            None => out.push_str(";49"),
        }
        out.push('m');
    }
}

impl Shade {
    fn name(self, out: &mut String) {
        // Writing to a string does not fail.
        let _ = match self {
            Self::Rgb([r, g, b]) => write!(out, ";2;{r};{g};{b}"),
            Self::Index(index) => write!(out, ";5;{index}"),
        };
    }
}

/// The nearest of the 240 colours that look the same everywhere: a cube of 6x6x6, and 24 greys.
fn nearest(colour: Colour) -> u8 {
    let cube = colour.map(|value| match value {
        0..48 => (0_u8, 0_u8),
        48..115 => (1, 95),
        _ => ((value - 35) / 40, (value - 35) / 40 * 40 + 55),
    });
    let [(r, _), (g, _), (b, _)] = cube;
    let mean = colour.map(u32::from).iter().sum::<u32>() / 3;
    let step = u8::try_from((mean.saturating_sub(3) / 10).min(23)).unwrap_or_default();
    let grey = step * 10 + 8;
    let distance = |other: Colour| -> u32 {
        colour.iter().zip(other).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
    };
    if distance([grey; 3]) < distance(cube.map(|(_, value)| value)) {
        232 + step
    } else {
        16 + 36 * r + 6 * g + b
    }
}

const CLEAR: &str = "\x1b[0m\x1b[2J";
const PLAIN: &str = "\x1b[0m";

#[cfg(test)]
mod tests {
    use super::*;

    const RED: Colour = [255, 0, 0];
    const BLUE: Colour = [0, 0, 255];

    fn drawn(canvas: &mut Canvas, width: u32, pixels: &[Colour]) -> String {
        let mut out = String::new();
        canvas.draw(&Grid { width, pixels: pixels.to_vec() }, &mut out);
        out
    }

    #[test]
    fn a_picture_is_in_the_middle_and_colours_are_set_only_where_they_change() {
        let mut canvas = Canvas::new(Colours::True, (4, 4));
        assert_eq!(canvas.room(), (4, 6));
        assert_eq!(
            drawn(&mut canvas, 2, &[RED, RED, BLUE, BLUE]),
            "\x1b[0m\x1b[2J\x1b[2;2H\x1b[38;2;255;0;0;48;2;0;0;255m▀▀\x1b[0m"
        );
    }

    #[test]
    fn only_what_has_changed_is_written() {
        let mut canvas = Canvas::new(Colours::Indexed, (3, 3));
        drawn(&mut canvas, 3, &[RED; 12]);
        assert_eq!(drawn(&mut canvas, 3, &[RED; 12]), "\x1b[0m");
        let mut pixels = [RED; 12];
        pixels[8] = BLUE;
        assert_eq!(drawn(&mut canvas, 3, &pixels), "\x1b[2;3H\x1b[38;5;21;48;5;196m▀\x1b[0m");
        assert!(drawn(&mut canvas, 2, &[RED; 4]).contains("\x1b[2J"), "another size");
    }

    #[test]
    fn an_odd_last_row_has_no_lower_half() {
        let mut canvas = Canvas::new(Colours::True, (1, 2));
        assert!(drawn(&mut canvas, 1, &[BLUE]).ends_with("\x1b[38;2;0;0;255;49m▀\x1b[0m"));
    }

    #[test]
    fn a_status_is_cut_at_the_edge_and_clears_what_was_behind_it() {
        let status = |columns, text| {
            let mut out = String::new();
            Canvas::new(Colours::True, (columns, 9)).status(text, &mut out);
            out
        };
        assert_eq!(status(5, "abc"), "\x1b[9;1H\x1b[0mabc\x1b[K");
        assert_eq!(status(5, "abcdefg"), "\x1b[9;1H\x1b[0mabcde");
    }

    #[test]
    fn colours_come_from_the_cube_or_from_the_greys() {
        for (colour, index) in [
            ([0, 0, 0], 16),
            ([255, 255, 255], 231),
            (RED, 196),
            (BLUE, 21),
            ([95, 135, 175], 67),
            ([128, 128, 128], 244),
            ([8, 8, 8], 232),
            ([238, 238, 238], 255),
            ([191, 0, 191], 127),
        ] {
            assert_eq!(nearest(colour), index, "{colour:?}");
        }
    }

    #[test]
    fn no_other_colour_is_nearer() {
        let steps = || [0, 95, 135, 175, 215, 255].into_iter();
        let cube = steps().flat_map(|r| steps().flat_map(move |g| steps().map(move |b| [r, g, b])));
        let palette: Vec<Colour> = cube.chain((0..24).map(|step| [step * 10 + 8; 3])).collect();
        let distance = |a: Colour, b: Colour| -> u32 {
            a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
        };
        let values = || (0..=255).step_by(15);
        for colour in values().flat_map(|r| values().flat_map(move |g| values().map(move |b| [r, g, b]))) {
            let found = palette[usize::from(nearest(colour) - 16)];
            let best = palette.iter().map(|other| distance(colour, *other)).min().unwrap();
            assert_eq!(distance(colour, found), best, "{colour:?}");
        }
    }

    #[test]
    fn the_environment_says_how_many_colours_there_are() {
        assert_eq!(Colours::promised(Some("truecolor")), Colours::True);
        assert_eq!(Colours::promised(Some("24bit")), Colours::True);
        assert_eq!(Colours::promised(Some("yes")), Colours::Indexed);
        assert_eq!(Colours::promised(None), Colours::Indexed);
    }
}
