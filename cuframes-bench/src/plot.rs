//! A picture of latencies, as SVG.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use tempfile::NamedTempFile;

use crate::case::Job;
use crate::numbers::figure;
use crate::report::{Curve, Report};
use crate::stats::Times;
use crate::system::Failure;

impl Report {
    /// Draws how long frames took, both sides spinning and to a reader that sleeps, as far as that was measured. Writes an
    /// SVG file: its name must end in `.svg`.
    ///
    /// # Errors
    /// Another kind of file is asked for, nothing of this was measured, or the file can't be written.
    pub fn plot(&self, path: &Path) -> Result<(), Failure> {
        check_plot(path)?;
        let jobs: Vec<Job> = [Job::Spin, Job::Wake]
            .into_iter()
            .filter(|job| self.curves.iter().any(|curve| curve.job == *job && curve.has_times()))
            .collect();
        if jobs.is_empty() {
            return Err(
                "there is nothing to plot: it takes the job spin or wake, measured at least once".into()
            );
        }
        let mut svg = String::new();
        let (width, height) = (860, 380 * u32::try_from(jobs.len())?);
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        area.fill(&WHITE)?;
        for (job, area) in jobs.iter().zip(area.split_evenly((jobs.len(), 1))) {
            let curves: Vec<_> =
                self.curves.iter().filter(|curve| curve.job == *job && curve.has_times()).collect();
            draw(*job, &curves, &area)?;
        }
        area.present()?;
        drop(area);
        let failed = |error: io::Error| format!("can't write {}: {error}", path.display());
        // Not into the file itself: what was there stays until there is something better.
        let mut file = new_file(path).map_err(failed)?;
        file.write_all(svg.as_bytes()).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

impl Curve {
    fn has_times(&self) -> bool {
        self.counts.iter().any(|counts| !counts.is_empty())
    }
}

/// A file beside the one that it is to become.
fn new_file(path: &Path) -> io::Result<NamedTempFile> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mode = Permissions::from_mode(0o644);
    tempfile::Builder::new().prefix(".cuframes-plot-").permissions(mode).tempfile_in(dir)
}

/// Checks that a plot can be written into such a file, before hours are spent on measuring.
///
/// # Errors
/// It can't.
pub fn check_plot(path: &Path) -> Result<(), Failure> {
    let cannot = |why: &str| -> Failure { format!("can't plot into {}: {why}", path.display()).into() };
    if !path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
        return Err(cannot("only SVG can be written; give it a name in .svg"));
    }
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(cannot("there is something else than a file; choose another name"));
    }
    new_file(path).map(drop).map_err(|error| cannot(&format!("{error}; choose another directory")))
}

/// One panel: the time that so many percent of all frames did not exceed.
fn draw(job: Job, curves: &[&Curve], area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Failure> {
    let lines: Result<Vec<_>, Failure> = curves.iter().map(|curve| line(curve)).collect();
    let lines = lines?;
    let times = || lines.iter().flatten().map(|(_, nanos)| *nanos);
    let lowest = times().fold(f64::INFINITY, f64::min) * 0.8;
    let highest = times().fold(0.0, f64::max) * 1.25;
    let mut chart = ChartBuilder::on(area)
        .caption(job.in_words(), ("sans-serif", 18))
        .margin(12)
        .margin_right(36)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..MOST_NINES, (lowest..highest).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("share of frames that took no longer")
        .x_labels(5)
        .x_label_formatter(&|nines| share(*nines))
        .y_label_formatter(&|nanos| time(*nanos))
        .y_labels(8)
        .light_line_style(WHITE)
        .label_style(("sans-serif", 13))
        .draw()?;
    for (index, (curve, line)) in curves.iter().zip(lines).enumerate() {
        let style = Palette99::pick(index).stroke_width(2);
        let series = LineSeries::new(line, style);
        chart
            .draw_series(series)?
            .label(&curve.system)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 13))
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// Points: how many nines the share has (1 is 90 %, 2 is 99 %), and nanoseconds.
fn line(curve: &Curve) -> Result<Vec<(f64, f64)>, Failure> {
    let mut times = Times::new()?;
    curve.counts.iter().for_each(|counts| times.merge(counts));
    let all: u64 = curve.counts.iter().flatten().map(|(_, count)| count).sum();
    // Beyond it there would be no time left.
    let most = figure(all.max(1)).log10().min(MOST_NINES);
    let points = (0..=POINTS).map(|point| most * figure(point) / figure(POINTS));
    Ok(points.filter_map(|nines| Some((nines, times.quantile(1.0 - 10_f64.powf(-nines))?))).collect())
}

/// `90 %` and so on; nothing between the whole nines.
fn share(nines: f64) -> String {
    if (nines - nines.round()).abs() > 0.01 {
        return String::new();
    }
    format!("{} %", 100.0 - 10_f64.powf(2.0 - nines.round()))
}

fn time(nanos: f64) -> String {
    match nanos {
        ..1e3 => format!("{nanos:.0} ns"),
        ..1e6 => format!("{:.0} µs", nanos / 1e3),
        _ => format!("{:.0} ms", nanos / 1e6),
    }
}

const MOST_NINES: f64 = 4.0;
const POINTS: u64 = 400;
