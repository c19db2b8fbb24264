//! `cuframes top`: a live screen of all streams.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use cuframes_mio::Observer;

use crate::args::TopArgs;
use crate::console::{Console, Printed};
use crate::error::{Failure, failed};
use crate::keys;
use crate::model::{Model, Report, Stream};
use crate::output;
use crate::signals::Signals;
use crate::view::usable;
use screen::{Screen, Turn};

mod screen;

pub(crate) fn run(
    args: &TopArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let observer = Observer::new(run_dir);
    if args.json {
        return report(args, &observer, signals, console);
    }
    usable("top", "use --json, or cuframes ls")?;
    let failed = |error| failed!("can't draw on the terminal: {error}");
    // It is put back when this program panics, too.
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let mut screen = Screen::new(args);
    let shown = show(&mut screen, args, &observer, signals, &mut terminal);
    ratatui::restore();
    shown.map_err(failed)
}

fn report(args: &TopArgs, observer: &Observer, signals: &Signals, console: &Console) -> Result<(), Failure> {
    let mut model = Model::default();
    let mut looks = 0;
    // The first look has no rates.
    let (sightings, _) = observer.streams();
    model.look(Instant::now(), sightings);
    while !signals.wait(args.interval) {
        let (sightings, troubles) = observer.streams();
        model.look(Instant::now(), sightings);
        let troubles = troubles.iter().map(ToString::to_string).collect();
        let wanted = |stream: &&Stream| args.key.as_ref().is_none_or(|key| *key == stream.facts.key);
        let streams = model.shown(&args.filter, args.sort).into_iter().filter(wanted).collect();
        let report = output::json(&Report { streams, troubles, has_pictures: None })?;
        if console.try_print(&report, signals)? == Printed::Closed {
            break;
        }
        looks += 1;
        if args.count == Some(looks) {
            break;
        }
    }
    Ok(())
}

fn show(
    screen: &mut Screen,
    args: &TopArgs,
    observer: &Observer,
    signals: &Signals,
    terminal: &mut ratatui::DefaultTerminal,
) -> io::Result<()> {
    let mut next = Instant::now();
    let mut looks = 0;
    while !signals.raised() {
        if Instant::now() >= next {
            if args.count == Some(looks) {
                break;
            }
            let (sightings, troubles) = observer.streams();
            screen.look(Instant::now(), sightings, &troubles);
            looks += 1;
            next = Instant::now() + args.interval;
        }
        terminal.draw(|frame| screen.draw(frame))?;
        // A signal does not end the wait.
        let pause = next.saturating_duration_since(Instant::now()).min(GLANCE);
        if let Some(Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. })) =
            keys::next(pause)?
        {
            let is_ctrl_c = code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
            if is_ctrl_c || screen.key(code) == Turn::Quit {
                break;
            }
        }
    }
    Ok(())
}

/// How long a signal may go unnoticed.
const GLANCE: Duration = Duration::from_millis(100);
