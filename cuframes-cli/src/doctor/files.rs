//! Run directories, `/dev/shm`, and limits on descriptors.

use std::fs;
use std::io;
use std::path::Path;

use cuframes_mio::Observer;
use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::Check;

pub(super) fn checks(run_dir: Option<&Path>) -> Vec<Check> {
    let observer = Observer::new(run_dir);
    // Of several it is enough that one can be used.
    let is_only = observer.run_dirs().count() == 1;
    let mut checks: Vec<_> = observer.run_dirs().map(|path| directory(path, is_only)).collect();
    // Which of them is used depends on who can be trusted with them (D-14).
    let (_, troubles) = observer.streams();
    for trouble in troubles {
        let remedy = "give the directory to the user who publishes, writable for nobody else; or choose another with --run-dir";
        checks.push(Check::problem("run directory", trouble.to_string(), remedy));
    }
    checks.extend([shm(), descriptors()]);
    checks
}

fn directory(path: &Path, is_only: bool) -> Check {
    let what = "run directory";
    let shown = path.display();
    let room = LONGEST_SOCKET_PATH.saturating_sub(path.as_os_str().len() + "/.sock".len());
    if room == 0 {
        let found = format!("{shown} is too long for the path of a socket");
        return Check::problem(what, found, "choose a shorter one with --run-dir");
    }
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => {
            Check::problem(what, format!("{shown} is not a directory"), "choose another with --run-dir")
        }
        Ok(_) => {
            let writes = Access::WRITE_OK | Access::EXEC_OK;
            match accessat(CWD, path, writes, AtFlags::EACCESS) {
                Ok(()) => Check::ok(what, format!("{shown} can be used to publish and to subscribe")),
                Err(_) => match accessat(CWD, path, Access::EXEC_OK | Access::READ_OK, AtFlags::EACCESS) {
                    Ok(()) => Check::ok(what, format!("{shown} can be used to subscribe only")),
                    Err(errno) => Check::warning(
                        what,
                        format!("{shown}: {errno}"),
                        "join the group that the directory belongs to, if there are streams for you in it",
                    ),
                },
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match can_be_made(path) {
            Err(error) if is_only => Check::problem(
                what,
                format!("{shown} is not there, and can't be made: {error}"),
                "create the directory that it is to be in, or choose another with --run-dir",
            ),
            _ => Check::ok(what, format!("{shown} is not there yet")),
        },
        Err(error) => Check::warning(what, format!("{shown}: {error}"), "choose another with --run-dir"),
    }
}

/// Whether a publisher would make it: it makes no directory but the last one.
fn can_be_made(path: &Path) -> Result<(), Errno> {
    let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or_else(|| Path::new("."));
    accessat(CWD, parent, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
}

fn shm() -> Check {
    let what = "/dev/shm";
    let remedy = "mount a tmpfs there: mount -t tmpfs -o mode=1777 tmpfs /dev/shm";
    let limits = match statvfs(what) {
        Ok(limits) => limits,
        Err(errno) => return Check::problem(what, errno.to_string(), remedy),
    };
    let may_create = Access::WRITE_OK | Access::EXEC_OK;
    if let Err(errno) = accessat(CWD, what, may_create, AtFlags::EACCESS) {
        return Check::problem(what, format!("files can't be created: {errno}"), remedy);
    }
    let mib = |blocks: u64| blocks.saturating_mul(limits.f_frsize) >> 20;
    let found = format!("{} of {} MiB free", mib(limits.f_bavail), mib(limits.f_blocks));
    // Regions are small; frames are in memory without a name.
    match limits.f_bavail.saturating_mul(limits.f_frsize) {
        0..65_536 => Check::problem(what, found, "remove what fills it, or mount it larger"),
        65_536..4_194_304 => Check::warning(what, found, "a stream needs 12 KiB of it; remove what fills it"),
        _ => Check::ok(what, found),
    }
}

fn descriptors() -> Check {
    let what = "open files";
    let limit = getrlimit(Resource::Nofile).current;
    let Some(limit) = limit else { return Check::ok(what, "without a limit") };
    let found = format!("at most {limit} in a process");
    match limit {
        0..64 => Check::problem(what, found, "raise the limit: ulimit -n 1024"),
        64..256 => Check::warning(
            what,
            found,
            "a publisher needs 4 for each subscriber and about 20 for itself: ulimit -n 1024",
        ),
        _ => Check::ok(what, found),
    }
}

/// What the kernel allows, without the zero at its end.
const LONGEST_SOCKET_PATH: usize = 107;
