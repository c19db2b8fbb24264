//! What a test can set: [`Config`], from the environment.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::fault::FaultRule;

/// How the driver behaves. The README has the variables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests make configurations")]
pub struct Config {
    /// The directory that the processes of a test share. `None` is one of the user's in `/dev/shm`.
    pub dir: Option<PathBuf>,
    /// How many devices the machine has.
    pub devices: usize,
    /// Which of them this process sees, in this order. `None` is all.
    pub visible: Option<Vec<usize>>,
    /// What the devices' UUIDs are made from.
    pub uuid_seed: u64,
    /// What the devices are called. The name always ends in the mark of a test double.
    pub name: Option<String>,
    /// Bytes of memory that each device has.
    pub memory: u64,
    /// What `cuDriverGetVersion` says.
    pub driver_version: i32,
    /// Attributes of devices that are not as usual.
    pub attributes: BTreeMap<i32, i32>,
    /// Whether legacy IPC is refused though the attributes say that it works: WSL2, MIG, Tegra.
    pub ipc_refused: bool,
    /// Whether a handle that is open can't be opened again in the same process, as before CUDA 11.
    pub ipc_reopen_fails: bool,
    /// How long each operation of a stream other than the default stream takes, in each of its halves.
    pub stream_delay: Duration,
    /// Whether streams other than the default stream never do anything.
    pub streams_hang: bool,
    /// Whether one host function runs at a time, whatever stream it is in.
    pub serial_host_functions: bool,
    /// How long a call that frees or closes memory waits for streams that do not get on, before that is a violation.
    pub close_limit: Duration,
    /// Whether devices can't map memory for reading only.
    pub read_only_refused: bool,
    /// Which calls fail.
    pub faults: Vec<FaultRule>,
    /// The file to which a process appends its report when it ends.
    pub report: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dir: None,
            devices: 1,
            visible: None,
            uuid_seed: 0,
            name: None,
            memory: 8 << 30,
            driver_version: 12_040,
            attributes: BTreeMap::new(),
            ipc_refused: false,
            ipc_reopen_fails: false,
            stream_delay: Duration::ZERO,
            streams_hang: false,
            serial_host_functions: false,
            close_limit: Duration::from_secs(20),
            read_only_refused: false,
            faults: Vec::new(),
            report: None,
        }
    }
}

impl Config {
    /// What the environment of this process says.
    ///
    /// # Errors
    /// Which variable can't be understood, and why.
    pub fn from_env() -> Result<Self, String> {
        Self::from_variables(|name| env::var(name).ok())
    }

    /// What these variables say.
    ///
    /// # Errors
    /// Which variable can't be understood, and why.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let usual = Self::default();
        let devices = number(&variable, "FAKE_CUDA_DEVICES")?.unwrap_or(usual.devices);
        let visible: Option<Vec<usize>> = list(&variable, "FAKE_CUDA_VISIBLE", |item| item.parse().ok())?;
        for (at, device) in visible.iter().flatten().enumerate() {
            let again = visible.iter().flatten().take(at).any(|before| before == device);
            if again || *device >= devices {
                return Err(format!("FAKE_CUDA_VISIBLE: device {device} is there twice or not at all"));
            }
        }
        let attribute = |item: &str| {
            let (number, value) = item.split_once('=')?;
            Some((number.parse().ok()?, value.parse().ok()?))
        };
        Ok(Self {
            dir: variable("FAKE_CUDA_DIR").map(PathBuf::from),
            devices,
            visible,
            uuid_seed: number(&variable, "FAKE_CUDA_UUID_SEED")?.unwrap_or(usual.uuid_seed),
            name: variable("FAKE_CUDA_NAME"),
            memory: number(&variable, "FAKE_CUDA_MEMORY")?.unwrap_or(usual.memory),
            driver_version: number(&variable, "FAKE_CUDA_DRIVER_VERSION")?.unwrap_or(usual.driver_version),
            attributes: list(&variable, "FAKE_CUDA_ATTRIBUTES", attribute)?
                .unwrap_or_default()
                .into_iter()
                .collect(),
            ipc_refused: switch(&variable, "FAKE_CUDA_IPC", "refused")?,
            ipc_reopen_fails: switch(&variable, "FAKE_CUDA_IPC_REOPEN", "fail")?,
            stream_delay: Duration::from_millis(number(&variable, "FAKE_CUDA_STREAM_DELAY_MS")?.unwrap_or(0)),
            streams_hang: switch(&variable, "FAKE_CUDA_HANG_STREAM", "1")?,
            serial_host_functions: switch(&variable, "FAKE_CUDA_HOST_FUNCTIONS", "serial")?,
            close_limit: number(&variable, "FAKE_CUDA_CLOSE_LIMIT_MS")?
                .map_or(usual.close_limit, Duration::from_millis),
            read_only_refused: switch(&variable, "FAKE_CUDA_READ_ONLY", "refused")?,
            faults: match variable("FAKE_CUDA_FAIL") {
                Some(text) => items(&text)
                    .map(|item| item.parse().map_err(|error| format!("FAKE_CUDA_FAIL: {error}")))
                    .collect::<Result<_, String>>()?,
                None => Vec::new(),
            },
            report: variable("FAKE_CUDA_REPORT").map(PathBuf::from),
        })
    }
}

fn number<T: FromStr>(variable: impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<T>, String> {
    match variable(name) {
        None => Ok(None),
        Some(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("{name}: {text:?} is not a number that fits")),
        },
    }
}

fn switch(variable: impl Fn(&str) -> Option<String>, name: &str, on: &str) -> Result<bool, String> {
    match variable(name) {
        None => Ok(false),
        Some(text) if text == on => Ok(true),
        Some(text) if text.is_empty() => Ok(false),
        Some(text) => Err(format!("{name}: {text:?} is not {on:?}")),
    }
}

fn list<T>(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<Vec<T>>, String> {
    let Some(text) = variable(name) else { return Ok(None) };
    let parse = |item: &str| parse(item).ok_or_else(|| format!("{name}: {item:?} can't be understood"));
    items(&text).map(parse).collect::<Result<_, _>>().map(Some)
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}
