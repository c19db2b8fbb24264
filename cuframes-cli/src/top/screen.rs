//! [`Screen`]: what `top` draws, and what its keys do.

use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use cuframes_core::Key;
use cuframes_mio::{Error, Sighting};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, TableState};

use crate::args::{Sort, TopArgs};
use crate::ls::short;
use crate::model::{Model, Stream, Subscriber};
use crate::output::Count;
use crate::survey::State;

/// The live screen.
pub(crate) struct Screen {
    model: Model,
    troubles: Vec<String>,
    sort: Sort,
    filter: String,
    /// The filter is being typed.
    is_typing: bool,
    /// The stream that the cursor is on.
    selected: Option<Key>,
    /// It fills the screen.
    is_open: bool,
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    GoOn,
    Quit,
}

impl Screen {
    pub(crate) fn new(args: &TopArgs) -> Self {
        Self {
            model: Model::default(),
            troubles: Vec::new(),
            sort: args.sort,
            filter: args.filter.clone(),
            is_typing: false,
            selected: args.key.clone(),
            is_open: args.key.is_some(),
        }
    }

    /// Takes in what was just seen.
    pub(crate) fn look(&mut self, at: Instant, sightings: Vec<Sighting>, troubles: &[Error]) {
        self.model.look(at, sightings);
        self.troubles = troubles.iter().map(ToString::to_string).collect();
    }

    /// What a key does.
    pub(crate) fn key(&mut self, key: KeyCode) -> Turn {
        if self.is_typing {
            match key {
                KeyCode::Enter => self.is_typing = false,
                KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) if !c.is_control() => self.filter.push(c),
                _ => {}
            }
            return Turn::GoOn;
        }
        match key {
            KeyCode::Esc if self.is_open => self.is_open = false,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc | KeyCode::Char('q') => return Turn::Quit,
            KeyCode::Enter => self.is_open = !self.is_open,
            KeyCode::Up | KeyCode::Char('k') => self.step(|index| index.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.step(|index| index.saturating_add(1)),
            KeyCode::Home => self.step(|_| 0),
            KeyCode::End => self.step(|_| usize::MAX),
            KeyCode::Char('s') => self.sort = next(self.sort),
            KeyCode::Char('/') => (self.is_typing, self.is_open) = (true, false),
            _ => {}
        }
        Turn::GoOn
    }

    /// Moves the cursor.
    fn step(&mut self, to: impl Fn(usize) -> usize) {
        let shown = self.model.shown(&self.filter, self.sort);
        let last = shown.len().saturating_sub(1);
        let index = stepped(self.position(&shown), to, last);
        self.selected = shown.get(index).map(|stream| stream.facts.key.clone());
    }

    fn position(&self, shown: &[&Stream]) -> Option<usize> {
        shown.iter().position(|stream| Some(&stream.facts.key) == self.selected.as_ref())
    }

    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let [title, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)])
                .areas(frame.area());
        let shown = self.model.shown(&self.filter, self.sort);
        let position = self.position(&shown).or(if shown.is_empty() { None } else { Some(0) });
        let selected = position.and_then(|index| shown.get(index).copied());
        frame.render_widget(self.title(&shown), title);
        frame.render_widget(self.foot(), foot);
        if self.is_open {
            match (selected, &self.selected) {
                (Some(stream), None) => draw_stream(frame, body, stream),
                (Some(stream), Some(key)) if stream.facts.key == *key => draw_stream(frame, body, stream),
                (_, key) => {
                    let key = key.as_ref().map(ToString::to_string).unwrap_or_default();
                    frame.render_widget(Paragraph::new(format!("stream {key} is not there")), body);
                }
            }
            return;
        }
        let wanted = selected.map_or(0, |stream| stream.subscribers_seen.len() + stream.hops.len() + 2);
        let below = u16::try_from(wanted).unwrap_or(u16::MAX).min(body.height / 2);
        let [list, detail] = Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(body);
        draw_list(frame, list, &shown, position, self.sort);
        if let Some(stream) = selected {
            draw_subscribers(frame, detail, stream);
        }
    }

    fn title(&self, shown: &[&Stream]) -> Line<'_> {
        let all = self.model.streams.len();
        let live = self.model.streams.iter().filter(|stream| stream.facts.state == State::Live).count();
        let filter = match (self.is_typing, &*self.filter) {
            (true, filter) => format!("  filter: {filter}_"),
            (false, "") => String::new(),
            (false, filter) => format!("  filter: {filter} ({} shown)", shown.len()),
        };
        let trouble = self.troubles.first().map(|trouble| format!("  {trouble}")).unwrap_or_default();
        Line::from(vec![
            Span::styled("cuframes", Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(format!("  {}, {live} live{filter}", Count(all, "stream"))),
            Span::styled(trouble, Style::new().fg(Color::Yellow)),
        ])
    }

    fn foot(&self) -> Line<'static> {
        let keys = if self.is_typing {
            "Enter keep  Esc clear"
        } else if self.is_open {
            "Enter/Esc back  up/down other stream  q quit"
        } else {
            "up/down select  Enter open  s sort  / filter  q quit"
        };
        Line::styled(keys, Style::new().add_modifier(Modifier::DIM))
    }
}

/// Where the cursor goes. The first row has it as long as none is selected.
fn stepped(from: Option<usize>, to: impl Fn(usize) -> usize, last: usize) -> usize {
    to(from.unwrap_or(0)).min(last)
}

const fn next(sort: Sort) -> Sort {
    match sort {
        Sort::Key => Sort::Fps,
        Sort::Fps => Sort::Subscribers,
        Sort::Subscribers => Sort::Lag,
        Sort::Lag => Sort::Lost,
        Sort::Lost => Sort::Key,
    }
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, shown: &[&Stream], position: Option<usize>, sort: Sort) {
    if shown.is_empty() {
        frame.render_widget(Paragraph::new("no streams"), area);
        return;
    }
    // What there is no room for at 80 columns is left out.
    let is_wide = area.width >= 110;
    let mark = |name: &str, column| if sort == column { format!("{name}*") } else { name.to_string() };
    let mut header = vec![
        mark("KEY", Sort::Key),
        "STATE".into(),
        mark("FPS", Sort::Fps),
        "".into(),
        mark("SUBS", Sort::Subscribers),
        mark("LAG", Sort::Lag),
        "LEASES".into(),
        mark("LOST", Sort::Lost),
        "LATENCY".into(),
    ];
    let mut widths = vec![
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(10),
        Constraint::Length(5),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(8),
    ];
    if is_wide {
        header.extend(["NEWEST", "SIZE", "PUBLISHER"].map(String::from));
        widths.extend([Constraint::Length(10), Constraint::Length(16), Constraint::Length(20)]);
    }
    let rows = shown.iter().map(|stream| {
        let Stream { facts, lag, leases, lost, latency_s, rates, .. } = stream;
        let mut cells = vec![
            facts.key.to_string(),
            facts.state.name().into(),
            facts.fps.map_or_else(|| "-".into(), |fps| format!("{fps:.1}")),
            sparkline(rates, 10),
            facts.subscribers.map_or_else(|| "-".into(), |subscribers| subscribers.to_string()),
            lag.to_string(),
            leases.to_string(),
            lost.to_string(),
            millis(*latency_s),
        ];
        if is_wide {
            cells.push(facts.newest.map_or_else(|| "-".into(), |newest| newest.to_string()));
            cells.push(geometry(stream));
            cells.push(publisher(stream));
        }
        Row::new(cells).style(Style::new().fg(colour(facts.state)))
    });
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::REVERSED)))
        .row_highlight_style(Style::new().add_modifier(Modifier::BOLD))
        .highlight_symbol("> ");
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(position));
}

/// A stream that fills the screen.
fn draw_stream(frame: &mut Frame<'_>, area: Rect, stream: &Stream) {
    let Stream { facts, rates, latency_s, lost, leases, .. } = stream;
    let line = |name: &str, value: String| Line::raw(format!("{name:<10} {value}"));
    let width = usize::from(area.width.saturating_sub(11));
    let mut lines = vec![
        Line::from(vec![
            Span::styled(format!("{:<10} ", facts.key), Style::new().add_modifier(Modifier::BOLD)),
            Span::styled(facts.state.name(), Style::new().fg(colour(facts.state))),
        ]),
        line("frames", format!("{}, newest {}", geometry(stream), facts.newest.unwrap_or(0))),
        line(
            "ring",
            format!(
                "{}, {}, {} memory",
                Count(facts.ring_size.unwrap_or(0), "slot"),
                facts.policy.as_deref().unwrap_or("-"),
                facts.backend.as_deref().unwrap_or("-"),
            ),
        ),
        line(
            "publisher",
            format!(
                "{}, for {}",
                publisher(stream),
                facts.age_s.map_or_else(|| "-".into(), |age| short(Duration::from_secs_f64(age))),
            ),
        ),
        line("fps", facts.fps.map_or_else(|| "-".into(), |fps| format!("{fps:.1}"))),
        line("", sparkline(rates, width)),
        line("now", format!("{}, {lost} lost, latency {}", Count(*leases, "lease"), millis(*latency_s))),
    ];
    if let Some(problem) = &facts.problem {
        lines.push(line("problem", problem.clone()));
    }
    let above = u16::try_from(lines.len() + 1).unwrap_or(u16::MAX);
    let [top, bottom] = Layout::vertical([Constraint::Length(above), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(lines), top);
    draw_subscribers(frame, bottom, stream);
}

/// The subscribers of a stream, each with a bar of how far it is behind, and below them its ways to other hosts.
fn draw_subscribers(frame: &mut Frame<'_>, area: Rect, stream: &Stream) {
    let [above, below] = [stream.subscribers_seen.len() + 1, stream.hops.len()]
        .map(|rows| u16::try_from(rows).unwrap_or(u16::MAX));
    let above = above.min(area.height.saturating_sub(below.min(area.height / 2)));
    let [area, hops] = Layout::vertical([Constraint::Length(above), Constraint::Fill(1)]).areas(area);
    let lines: Vec<_> = stream.hops.iter().map(|hop| Line::raw(hop.line())).collect();
    frame.render_widget(Paragraph::new(lines), hops);
    if stream.subscribers_seen.is_empty() {
        frame.render_widget(Paragraph::new(format!("{}: no subscribers", stream.facts.key)), area);
        return;
    }
    let ring_size = stream.facts.ring_size.unwrap_or(0);
    let header = ["BIT", "SUBSCRIBER", "PID", "LAG", "", "LEASES", "LOST", "LATENCY", "ASLEEP"];
    let widths = [3, 0, 8, 5, 16, 6, 6, 8, 6].map(|width| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width),
    });
    let rows = stream.subscribers_seen.iter().map(|subscriber| {
        let Subscriber { bit, name, pid, lag, leases, lost, latency_s, is_asleep } = subscriber;
        let colour = match lag.unwrap_or(0) {
            lag if lag >= ring_size => Color::Red,
            lag if lag.saturating_mul(2) >= ring_size => Color::Yellow,
            _ => Color::Reset,
        };
        Row::new([
            bit.to_string(),
            name.clone(),
            pid.to_string(),
            lag.map_or_else(|| "-".into(), |lag| lag.to_string()),
            lag.map(|lag| bar(lag, ring_size)).unwrap_or_default(),
            leases.to_string(),
            lost.to_string(),
            millis(*latency_s),
            if *is_asleep { "yes" } else { "no" }.to_string(),
        ])
        .style(Style::new().fg(colour))
    });
    let header = Row::new(header).style(Style::new().add_modifier(Modifier::UNDERLINED));
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

/// One cell for each slot of the ring, full as far as the subscriber is behind.
fn bar(lag: u64, ring_size: u64) -> String {
    (1..=ring_size).map(|slot| if slot <= lag { '█' } else { '·' }).collect()
}

/// The last rates as a line of small bars, which are full at the highest of them.
fn sparkline(rates: &[f64], width: usize) -> String {
    let rates = rates.get(rates.len().saturating_sub(width)..).unwrap_or_default();
    let highest = rates.iter().copied().fold(0.0, f64::max);
    rates
        .iter()
        .map(|rate| BARS.iter().rev().find(|(share, _)| *rate > highest * share).map_or(' ', |(_, bar)| *bar))
        .collect()
}

/// From which share of the highest rate on a bar is so high.
const BARS: [(f64, char); 8] = [
    (0.0, '▁'),
    (0.125, '▂'),
    (0.25, '▃'),
    (0.375, '▄'),
    (0.5, '▅'),
    (0.625, '▆'),
    (0.75, '▇'),
    (0.875, '█'),
];

fn geometry(stream: &Stream) -> String {
    let facts = &stream.facts;
    match (&facts.format, facts.width, facts.height) {
        (Some(format), Some(width), Some(height)) => format!("{format} {width}x{height}"),
        _ => "-".into(),
    }
}

fn publisher(stream: &Stream) -> String {
    match (stream.facts.publisher_pid, &stream.facts.publisher_name) {
        (Some(pid), Some(name)) => format!("{pid} {name}"),
        (Some(pid), None) => pid.to_string(),
        (None, _) => "-".into(),
    }
}

fn millis(secs: Option<f64>) -> String {
    secs.map_or_else(|| "-".into(), |secs| format!("{:.0} ms", secs * 1e3))
}

const fn colour(state: State) -> Color {
    match state {
        State::Live => Color::Green,
        State::Stalled => Color::Yellow,
        State::Stale | State::Foreign => Color::Red,
        State::Unknown => Color::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_last_rates_up_to_the_highest() {
        assert_eq!(sparkline(&[0.0, 10.0, 5.0, 30.0], 10), " ▃▂█");
        assert_eq!(sparkline(&[1.0, 2.0, 3.0], 2), "▆█");
        assert_eq!(sparkline(&[0.0], 4), " ");
        assert_eq!(sparkline(&[], 4), "");
    }

    #[test]
    fn the_first_key_moves_the_cursor_from_the_first_row() {
        assert_eq!(stepped(None, |row| row + 1, 3), 1);
        assert_eq!(stepped(None, |_| usize::MAX, 3), 3);
        assert_eq!(stepped(None, |row| row.saturating_sub(1), 3), 0);
        assert_eq!(stepped(Some(3), |row| row + 1, 3), 3);
    }

    #[test]
    fn a_bar_has_a_cell_for_each_slot() {
        assert_eq!(bar(3, 8), "███·····");
        assert_eq!(bar(99, 4), "████");
    }
}
