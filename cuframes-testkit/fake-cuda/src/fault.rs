//! Which calls fail on purpose: [`FaultRule`], from `FAKE_CUDA_FAIL`.

use std::str::FromStr;

use crate::code::Code;
use crate::entry_point::EntryPoint;

/// One rule: `NAME@N=CODE` lets the `N`th call of `NAME` in each process fail, `NAME@*=CODE` every one.
/// `NAME@N=hang` lets it succeed, but what it puts into a stream is never done, nor what comes after it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests make rules")]
pub struct FaultRule {
    /// The call that fails.
    pub entry_point: EntryPoint,
    /// Which of its calls, counted from 1. `None` is every one.
    pub occurrence: Option<u64>,
    /// What happens to it.
    pub fault: Fault,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It returns this and does nothing else.
    Code(Code),
    /// What it puts into a stream is never done.
    Hang,
}

impl FaultRule {
    /// Whether this rule is about that call.
    pub(crate) fn is_about(&self, entry_point: EntryPoint, occurrence: u64) -> bool {
        self.entry_point == entry_point && self.occurrence.is_none_or(|only| only == occurrence)
    }
}

impl FromStr for FaultRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("{text:?} is not NAME@N=CODE, NAME@*=CODE or NAME@N=hang");
        let (name, rest) = text.split_once('@').ok_or_else(malformed)?;
        let (occurrence, fault) = rest.split_once('=').ok_or_else(malformed)?;
        let entry_point = EntryPoint::of_name(name).ok_or_else(|| format!("there is no call {name:?}"))?;
        let occurrence = match occurrence {
            "*" => None,
            number => match number.parse() {
                Ok(0) | Err(_) => return Err(malformed()),
                Ok(number) => Some(number),
            },
        };
        let fault = match fault {
            "hang" => Fault::Hang,
            number => Fault::Code(Code::new(number.parse().map_err(|_| malformed())?)),
        };
        Ok(Self { entry_point, occurrence, fault })
    }
}
