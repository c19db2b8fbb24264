//! `cuframes view`: the newest frames of a stream, drawn with characters.

mod canvas;
mod scale;
mod terminal;

use std::env;
use std::path::Path;
use std::time::{Duration, Instant};

use self::canvas::{Canvas, Colours};
use self::scale::{Grid, Scaler, fit};
use self::terminal::Terminal;
pub(crate) use self::terminal::usable;
use crate::args::ViewArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::output::Count;
use crate::picture::Picture;
use crate::rate::{Pacer, Rate};
use crate::signals::Signals;
use crate::snapshot::no_picture;
use crate::stats::{End, fps};
use crate::taker::{self, Taken, Taker};

/// Shows frames until the stream ends, enough of them were shown, or somebody wants no more; then says how many it were.
pub(crate) fn run(
    args: &ViewArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    terminal::check()?;
    let ViewArgs { key, memory, timeout, .. } = args;
    // A terminal may take nothing more; then at least its mode is put back.
    signals
        .insist_with(|| {
            terminal::restore_mode();
            0
        })
        .map_err(|error| failed!("can't handle signals: {error}; raise the limits (ulimit -u)"))?;
    let Some(mut taker) = taker::subscribe(key, memory, run_dir, *timeout, signals)? else {
        return Ok(());
    };
    let mut show = Show::new(args);
    // The terminal is as it was before anything is said about the end.
    let end = Terminal::enter().and_then(|terminal| show.run(taker.as_mut(), &terminal, signals))?;
    let reason = end.map_or(String::new(), |end| format!(" ({end})"));
    console.print(&format!("{key}: {} shown{reason}", Count(show.frames, "frame")), signals)
}

/// What is shown of a stream.
struct Show<'a> {
    args: &'a ViewArgs,
    /// From the first frame on.
    picture: Option<Picture>,
    canvas: Canvas,
    /// The frame that is shown.
    grid: Grid,
    seq: Option<u64>,
    frames: u64,
    dropped: u64,
    /// Frames per second lately, since when it is being measured again, and how many frames there were then.
    fps: f64,
    since: (Instant, u64),
}

impl<'a> Show<'a> {
    fn new(args: &'a ViewArgs) -> Self {
        let colours = Colours::promised(env::var("COLORTERM").ok().as_deref());
        Self {
            args,
            picture: None,
            canvas: Canvas::new(colours, (0, 0)),
            grid: Grid::default(),
            seq: None,
            frames: 0,
            dropped: 0,
            fps: 0.0,
            since: (Instant::now(), 0),
        }
    }

    /// Shows frames until the end; `None` if it was a key.
    fn run(
        &mut self,
        taker: &mut dyn Taker,
        terminal: &Terminal,
        signals: &Signals,
    ) -> Result<Option<End>, Failure> {
        let start = Instant::now();
        let mut pacer = Pacer::new(Rate { num: self.args.fps, den: 1 }, start);
        let mut due = start + pacer.delay(start);
        // The frame that is held and was not shown yet.
        let mut pending = None;
        while Some(self.frames) != self.args.frames {
            if signals.raised() {
                return Ok(Some(End::Signal));
            }
            if terminal.has_end_key()? {
                return Ok(None);
            }
            let mut out = String::new();
            let is_new_size = self.resize(terminal.size());
            if is_new_size {
                self.redraw(&mut out);
            }
            // Every frame is taken, so that nobody waits for us, and only as many are shown as there is time for.
            let wait = due.saturating_duration_since(Instant::now());
            match taker.take(if pending.is_some() { wait.min(STEP) } else { STEP })? {
                Taken::Ended => return Ok(Some(End::Stream)),
                Taken::Frame { seq, lost, .. } => {
                    pending = Some(seq);
                    self.dropped += lost;
                }
                Taken::Nothing => {}
            }
            let mut is_new = false;
            if let Some(seq) = pending.take_if(|_| due <= Instant::now()) {
                is_new = self.look(taker)?;
                if is_new {
                    self.seq = Some(seq);
                    self.frames += 1;
                    self.canvas.draw(&self.grid, &mut out);
                    let now = Instant::now();
                    due = now + pacer.delay(now);
                } else {
                    self.dropped += 1;
                }
            }
            let is_measured = self.measure(Instant::now());
            if is_new || is_new_size || is_measured {
                self.canvas.status(&self.status(), &mut out);
                terminal.write(&format!("{BEGIN}{out}{END}"))?;
            }
        }
        Ok(Some(End::Frames))
    }

    /// Makes the frame that is held as small as the terminal. Answers whether it was still whole.
    fn look(&mut self, taker: &mut dyn Taker) -> Result<bool, Failure> {
        let Self { args, picture, canvas, grid, .. } = self;
        let mut next = None;
        let is_whole = taker.look(&mut |meta, frame| {
            let picture = match picture {
                Some(picture) if picture.fits(meta) => picture,
                _ => picture
                    .insert(Picture::new(meta, args.colour).ok_or_else(|| no_picture(&args.key, meta))?),
            };
            let size = picture.size();
            let mut scaler = Scaler::new(size, fit(size, canvas.room()));
            for y in 0..size.1 {
                scaler.push(picture.row(frame, y).iter().map(|&[r, g, b, _]| [r, g, b]));
            }
            next = Some(scaler.finish());
            Ok(())
        })?;
        if let (true, Some(next)) = (is_whole, next) {
            *grid = next;
        }
        Ok(is_whole)
    }

    /// Answers whether the terminal has another size now.
    fn resize(&mut self, size: (u32, u32)) -> bool {
        let is_new = self.canvas.size != size;
        if is_new {
            self.canvas = Canvas::new(self.canvas.colours, size);
        }
        is_new
    }

    /// Draws the frame that is shown in another size, until there is a better one.
    fn redraw(&mut self, out: &mut String) {
        let height = u32::try_from(self.grid.rows().count()).unwrap_or(u32::MAX);
        if let Some(picture) = self.picture.as_ref().filter(|_| height > 0) {
            let from = (self.grid.width, height);
            let mut scaler = Scaler::new(from, fit(picture.size(), self.canvas.room()));
            self.grid.rows().for_each(|row| scaler.push(row.iter().copied()));
            self.grid = scaler.finish();
        }
        self.canvas.draw(&self.grid, out);
    }

    /// Measures the rate once a second. Answers whether it did.
    fn measure(&mut self, now: Instant) -> bool {
        let (since, frames) = self.since;
        let elapsed = now.saturating_duration_since(since);
        if elapsed < SECOND {
            return false;
        }
        self.fps = fps(self.frames - frames, elapsed);
        self.since = (now, self.frames);
        true
    }

    fn status(&self) -> String {
        let Self { fps, dropped, .. } = self;
        let key = &self.args.key;
        match self.seq {
            Some(seq) => format!("{key}  frame {seq}  {fps:.1} fps  {dropped} dropped  (q ends)"),
            None => format!("{key}  waiting for a frame  (q ends)"),
        }
    }
}

/// How long to wait for a frame before the keys are looked at again.
const STEP: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

/// A terminal that knows these shows what is between them at once.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";
