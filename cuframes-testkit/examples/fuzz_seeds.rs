//! Writes the seeds of all fuzz targets to `fuzz/corpus`, where a test expects exactly these.

use std::{fs, io};

use cuframes_testkit::chaos::TARGETS;
use cuframes_testkit::chaos::seeds::{SEED, corpus, seeds};

fn main() -> io::Result<()> {
    for (target, _) in TARGETS {
        let dir = corpus(target);
        fs::create_dir_all(&dir)?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(SEED) {
                fs::remove_file(entry.path())?;
            }
        }
        for (name, bytes) in seeds(target) {
            fs::write(dir.join(format!("{SEED}{name}")), bytes)?;
        }
    }
    Ok(())
}
