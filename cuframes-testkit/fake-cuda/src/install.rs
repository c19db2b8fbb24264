//! For tests of programs that use CUDA: [`Installation`], a directory that makes the dynamic loader find this library, and
//! what the processes of one test share.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report::Report;

/// A directory with the library in it, as `libcuda.so` and `libcuda.so.1`, and with what its processes share.
#[derive(Clone, Debug)]
pub struct Installation {
    library_dir: PathBuf,
    session: PathBuf,
    report: PathBuf,
}

impl Installation {
    /// Installs the library in `dir`, which a test removes at its end.
    ///
    /// # Errors
    /// The library is not where cargo puts it, or `dir` can't be written.
    pub fn new(dir: &Path) -> io::Result<Self> {
        let library_dir = install(&dir.join("lib"))?;
        let session = dir.join("session");
        fs::create_dir_all(&session)?;
        Ok(Self { library_dir, session, report: dir.join("report") })
    }

    /// Lets a program that is about to start find the library, share memory with the others, and report.
    pub fn set_up<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.envs(self.variables())
    }

    /// The variables that [`Installation::set_up`] sets.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, OsString); 3] {
        let mut search = self.library_dir.clone().into_os_string();
        if let Some(others) = env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
            search.push(":");
            search.push(others);
        }
        [
            ("LD_LIBRARY_PATH", search),
            ("FAKE_CUDA_DIR", self.session.clone().into()),
            ("FAKE_CUDA_REPORT", self.report.clone().into()),
        ]
    }

    /// The reports of the processes that have ended.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn reports(&self) -> io::Result<Vec<Report>> {
        Report::read_all(&self.report)
    }

    /// What is in the directory that the processes share: nothing when all have ended well.
    ///
    /// # Errors
    /// It can't be read.
    pub fn left_behind(&self) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(&self.session)?.map(|entry| Ok(entry?.path())).collect()
    }
}

/// Makes `dir`, with `libcuda.so` and `libcuda.so.1` in it, which are links to this library as cargo built it for the program
/// that calls this. Returns `dir`.
///
/// # Errors
/// The library is not where cargo puts it, or `dir` can't be written.
pub fn install(dir: &Path) -> io::Result<PathBuf> {
    let library = find()?;
    fs::create_dir_all(dir)?;
    for name in ["libcuda.so", "libcuda.so.1"] {
        let link = dir.join(name);
        match fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => symlink(&library, &link)?,
        }
    }
    Ok(dir.to_path_buf())
}

/// Cargo builds a dependency's library beside the tests; examples are in a directory next to it, programs in that above.
fn find() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    // First where it is never from an earlier build.
    let places = ["deps", "", "../deps"].map(|place| program.with_file_name(place).join(LIBRARY));
    let found = places.iter().find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        let text =
            format!("{LIBRARY} is not beside {}: is cuframes-fake-cuda a dependency?", program.display());
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

const LIBRARY: &str = "libfake_cuda.so";
