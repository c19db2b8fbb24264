//! `cuframes inspect`: everything that a region says, and what in it breaks the protocol.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use cuframes_core::Key;
use cuframes_core::shm::layout::subscriber_state;
use cuframes_core::shm::snapshot::{Fault, NamedWord, Part, SubscriberState};
use cuframes_core::shm::{Snapshot, StreamHeader};
use cuframes_mio::Observer;
use serde::Serialize;

use crate::args::InspectArgs;
use crate::console::Console;
use crate::error::{Failure, failed};
use crate::ls::{lines, short};
use crate::output::{self, Count};
use crate::signals::Signals;
use crate::survey::{Facts, Look, age, named, run_dirs};

/// All about one stream.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    facts: Facts,
    header: Header,
    planes: Vec<Plane>,
    slots: Vec<Slot>,
    subscribers: Vec<Subscriber>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Header {
    lib_version: String,
    ownership: String,
    features: String,
    epoch: u64,
    is_shutting_down: bool,
    is_publisher_parked: bool,
}

#[derive(Serialize)]
struct Plane {
    offset: u64,
    pitch: u32,
    row_bytes: u32,
    rows: u32,
}

#[derive(Serialize)]
struct Slot {
    slot: usize,
    seq: Option<u64>,
    pts_ns: i64,
    age_s: Option<f64>,
    written_bytes: u64,
    /// Bits of subscribers.
    leases: Vec<u8>,
    acks: Vec<u8>,
}

#[derive(Serialize)]
struct Subscriber {
    bit: u8,
    state: String,
    pid: u64,
    name: String,
    last_seen: u64,
    lag: Option<u64>,
    leases: usize,
    last_ack_age_s: Option<f64>,
    is_parked: bool,
    term: u64,
}

/// Looks twice, and tells what is there.
pub(crate) fn run(
    args: &InspectArgs,
    run_dir: Option<&Path>,
    signals: &Signals,
    console: &Console,
) -> Result<(), Failure> {
    let observer = Observer::new(run_dir);
    let look = || {
        let sighting = observer.stream(&args.key);
        sighting.map(|sighting| Look::new(None, Instant::now(), sighting))
    };
    let Some(earlier) = look() else { return Err(nothing(&args.key, &observer)) };
    signals.wait(WINDOW);
    let Some(later) = look() else { return Err(failed!("stream {} has just ended", args.key)) };
    let facts = Facts::of(Some(&earlier), &later);
    if let (Ok(snapshot), true) = (&later.sighting.snapshot, args.hex && later.sighting.foreign().is_some()) {
        console.print(&words(snapshot), signals)?;
    }
    if let Some(problem) = later.sighting.foreign() {
        return Err(failed!("{} is no region of a stream: {problem}", facts.region.display()));
    }
    let snapshot = later.sighting.snapshot.as_ref().map_err(|error| failed!("{error}"))?;
    let header = snapshot.header().map_err(|violation| failed!("{violation}"))?;
    let report = Report::of(facts, &header, &earlier, snapshot);
    let text = if args.json {
        output::json(&report)?
    } else if args.hex {
        format!("{report}\n\n{}", words(snapshot))
    } else {
        report.to_string()
    };
    console.print(&text, signals)
}

fn nothing(key: &Key, observer: &Observer) -> Failure {
    failed!("no stream {key} in {} and no region of it in /dev/shm; see cuframes ls", run_dirs(observer))
}

impl Report {
    fn of(facts: Facts, header: &StreamHeader, earlier: &Look, snapshot: &Snapshot) -> Self {
        let now = cuframes_mio::now().as_nanos();
        let since = |then| age(now, then).map(|age| age.as_secs_f64());
        let [major, minor, patch] = header.lib_version;
        let subscriber = |subscriber: SubscriberState| Subscriber {
            bit: subscriber.bit,
            state: state(subscriber.state),
            lag: snapshot.lag_of(&subscriber),
            leases: snapshot.leases_of(&subscriber),
            last_ack_age_s: i64::try_from(subscriber.last_ack_ns).ok().and_then(since),
            pid: subscriber.pid,
            name: subscriber.name,
            last_seen: subscriber.last_seen,
            is_parked: subscriber.is_parked,
            term: subscriber.term,
        };
        let slots = snapshot.slots().map(|slot| Slot {
            slot: slot.slot,
            seq: slot.seq,
            pts_ns: slot.pts_ns,
            age_s: slot.seq.and_then(|_| since(slot.pts_ns)),
            written_bytes: slot.written_bytes,
            leases: bits(slot.leases),
            acks: bits(slot.acks),
        });
        Self {
            facts,
            header: Header {
                lib_version: format!("{major}.{minor}.{patch}"),
                ownership: named(header.ownership.name(), header.ownership.0),
                features: header.features.to_string(),
                epoch: header.epoch,
                is_shutting_down: snapshot.is_shutting_down(),
                is_publisher_parked: snapshot.is_publisher_parked(),
            },
            planes: header
                .meta
                .planes()
                .map(|plane| Plane {
                    offset: plane.offset,
                    pitch: plane.pitch,
                    row_bytes: plane.row_bytes,
                    rows: plane.rows,
                })
                .collect(),
            slots: slots.collect(),
            subscribers: snapshot.subscribers().map(subscriber).collect(),
            warnings: lasting(earlier.sighting.snapshot.as_ref().ok(), snapshot),
        }
    }
}

/// What broke the protocol at both looks: a stream that flows may be looked at between two of its stores.
fn lasting(earlier: Option<&Snapshot>, later: &Snapshot) -> Vec<String> {
    let before = earlier.map(Snapshot::faults).unwrap_or_default();
    let is_old =
        |fault: &Fault| before.iter().any(|old| (old.offset, old.must) == (fault.offset, fault.must));
    later.faults().iter().filter(|fault| is_old(fault)).map(ToString::to_string).collect()
}

fn state(state: u64) -> String {
    let name = match state {
        subscriber_state::CONNECTING => Some("connecting"),
        subscriber_state::ACTIVE => Some("active"),
        subscriber_state::DRAINING => Some("draining"),
        _ => None,
    };
    named(name, state)
}

/// The numbers of the bits that are set.
fn bits(bitmap: u64) -> Vec<u8> {
    (0..64).filter(|bit| bitmap >> bit & 1 == 1).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { facts, header, planes, slots, subscribers, warnings } = self;
        let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let span =
            |secs: Option<f64>| secs.map_or_else(|| "-".into(), |secs| short(Duration::from_secs_f64(secs)));
        let mut rows: Vec<(&str, String)> = vec![
            ("stream", format!("{}, {}", facts.key, facts.state.name())),
            ("region", facts.region.display().to_string()),
            ("socket", facts.socket.as_ref().map_or_else(|| "-".into(), |path| path.display().to_string())),
            (
                "publisher",
                format!(
                    "{} {}, user {}, for {}, library {}",
                    facts.publisher_pid.unwrap_or(0),
                    dash(&facts.publisher_name),
                    facts.uid.map_or_else(|| "-".into(), |uid| uid.to_string()),
                    span(facts.age_s),
                    header.lib_version,
                ),
            ),
            (
                "frames",
                format!(
                    "{} {}x{}, {} bytes, {} memory, by the {}",
                    dash(&facts.format),
                    facts.width.unwrap_or(0),
                    facts.height.unwrap_or(0),
                    facts.frame_bytes.unwrap_or(0),
                    dash(&facts.backend),
                    header.ownership,
                ),
            ),
        ];
        rows.extend(planes.iter().enumerate().map(|(index, plane)| {
            let Plane { offset, pitch, row_bytes, rows } = plane;
            ("plane", format!("{index}: {rows} rows of {row_bytes} bytes, pitch {pitch}, at {offset}"))
        }));
        let yes = |is_so| if is_so { "yes" } else { "no" };
        rows.extend([
            ("ring", format!("{}, {}", Count(facts.ring_size.unwrap_or(0), "slot"), dash(&facts.policy))),
            (
                "newest",
                format!(
                    "{} at {:.1} fps, {} ago",
                    facts.newest.unwrap_or(0),
                    facts.fps.unwrap_or(0.0),
                    facts.last_frame_age_s.map_or_else(|| "-".into(), |age| format!("{:.1} ms", age * 1e3)),
                ),
            ),
            ("features", format!("{}, epoch {:#018x}", header.features, header.epoch)),
            (
                "waiting",
                format!(
                    "for subscribers: {}; shutting down: {}",
                    yes(header.is_publisher_parked),
                    yes(header.is_shutting_down)
                ),
            ),
        ]);
        for (name, value) in rows {
            writeln!(f, "{name:<10} {value}")?;
        }
        writeln!(f, "\n{}", slot_table(slots))?;
        if subscribers.is_empty() {
            write!(f, "\nno subscribers")?;
        } else {
            write!(f, "\n{}", subscriber_table(subscribers))?;
        }
        for warning in warnings {
            write!(f, "\nwarning: {warning}")?;
        }
        Ok(())
    }
}

fn slot_table(slots: &[Slot]) -> String {
    let mut table = Table::new();
    let header = ["SLOT", "SEQ", "PTS (NS)", "AGE (MS)", "BYTES", "LEASES", "ACKS"];
    table.load_style(presets::NOTHING).set_header(header);
    for slot in slots {
        table.add_row([
            slot.slot.to_string(),
            slot.seq.map_or_else(|| "-".into(), |seq| seq.to_string()),
            slot.pts_ns.to_string(),
            millis(slot.age_s),
            slot.written_bytes.to_string(),
            list(&slot.leases),
            list(&slot.acks),
        ]);
    }
    lines(&table)
}

fn subscriber_table(subscribers: &[Subscriber]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "BIT",
        "STATE",
        "PID",
        "NAME",
        "LAST SEEN",
        "LAG",
        "LEASES",
        "LAST ACK (MS)",
        "ASLEEP",
        "TERM",
    ]);
    for subscriber in subscribers {
        table.add_row([
            subscriber.bit.to_string(),
            subscriber.state.clone(),
            subscriber.pid.to_string(),
            subscriber.name.clone(),
            subscriber.last_seen.to_string(),
            subscriber.lag.map_or_else(|| "-".into(), |lag| lag.to_string()),
            subscriber.leases.to_string(),
            millis(subscriber.last_ack_age_s),
            if subscriber.is_parked { "yes" } else { "no" }.to_string(),
            subscriber.term.to_string(),
        ]);
    }
    lines(&table)
}

fn millis(secs: Option<f64>) -> String {
    secs.map_or_else(|| "-".into(), |secs| format!("{:.1}", secs * 1e3))
}

fn list(bits: &[u8]) -> String {
    let bits: Vec<_> = bits.iter().map(ToString::to_string).collect();
    if bits.is_empty() { "-".into() } else { bits.join(",") }
}

/// Every word that is not zero, one a line.
fn words(snapshot: &Snapshot) -> String {
    let mut text = String::from("OFFSET  VALUE               FIELD");
    for NamedWord { offset, of, field, value, .. } in snapshot.words() {
        if value == 0 {
            continue;
        }
        let _ = write!(text, "\n{offset:#06x}  {value:#018x}  ");
        let _ = match of {
            Some((Part::Slot, index)) => write!(text, "slot {index} {field}"),
            Some((Part::Subscriber, bit)) => write!(text, "subscriber {bit} {field}"),
            _ => write!(text, "{field}"),
        };
    }
    text
}

/// Between two looks: a few frames come meanwhile, and people don't notice.
const WINDOW: Duration = Duration::from_millis(300);
