//! What a call of the driver returns: [`Code`], CUDA's `CUresult`.

use std::ffi::CStr;
use std::fmt;

/// A `CUresult`. Numbers that are not named here survive: a fault may be of any.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Code(u32);

/// What a call gives, or why it failed.
pub type Result<T> = std::result::Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $number:literal, $c_name:literal, $text:literal;)*) => {
        impl Code {
            $(#[doc = concat!("`", stringify!($number), "`: ", stringify!($text))] pub const $name: Self = Self($number);)*

            /// What CUDA calls it and what it means, if it is one of the codes above.
            #[must_use]
            pub fn describe(self) -> Option<(&'static CStr, &'static CStr)> {
                match self {
                    $(Self::$name => Some(($c_name, $text)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    SUCCESS = 0, c"CUDA_SUCCESS", c"done";
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"an argument can't be used";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"there is not enough memory";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"cuInit was not called, or not in this process";
    DEINITIALIZED = 4, c"CUDA_ERROR_DEINITIALIZED", c"the driver is shutting down";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"there is no device";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"there is no such device";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"no context that could do this";
    MAP_FAILED = 205, c"CUDA_ERROR_MAP_FAILED", c"memory could not be mapped";
    UNMAP_FAILED = 206, c"CUDA_ERROR_UNMAP_FAILED", c"memory could not be unmapped";
    ALREADY_MAPPED = 208, c"CUDA_ERROR_ALREADY_MAPPED", c"the memory is mapped already";
    NOT_MAPPED = 211, c"CUDA_ERROR_NOT_MAPPED", c"the memory is not mapped";
    PEER_ACCESS_UNSUPPORTED = 217, c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", c"the devices can't reach each other";
    OPERATING_SYSTEM = 304, c"CUDA_ERROR_OPERATING_SYSTEM", c"a call of the operating system failed";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"there is nothing of this handle";
    ILLEGAL_STATE = 401, c"CUDA_ERROR_ILLEGAL_STATE", c"the object is not in a state for this";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"there is nothing of this name";
    NOT_READY = 600, c"CUDA_ERROR_NOT_READY", c"work is not done yet";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"the device used an address that is not its own";
    LAUNCH_TIMEOUT = 702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"work on the device took too long";
    PRIMARY_CONTEXT_ACTIVE = 708, c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", c"the primary context is in use";
    CONTEXT_IS_DESTROYED = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"the current context was destroyed";
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED", c"work on the device failed";
    NOT_PERMITTED = 800, c"CUDA_ERROR_NOT_PERMITTED", c"this may not be called here";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"the device or the system can't do this";
    SYSTEM_NOT_READY = 802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"the system is not set up";
    SYSTEM_DRIVER_MISMATCH = 803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"kernel module and library do not fit";
    TIMEOUT = 909, c"CUDA_ERROR_TIMEOUT", c"it took too long";
    EXTERNAL_DEVICE = 911, c"CUDA_ERROR_EXTERNAL_DEVICE", c"work on another device failed";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"nobody knows why";
}

impl Code {
    /// The code of this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.describe() {
            Some((name, _)) => write!(f, "{} ({})", name.to_string_lossy(), self.0),
            None => write!(f, "CUresult {}", self.0),
        }
    }
}

/// A test double that can't do what the operating system would have to do says so, like the driver.
impl From<std::io::Error> for Code {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::OutOfMemory => Self::OUT_OF_MEMORY,
            _ => Self::OPERATING_SYSTEM,
        }
    }
}

impl From<rustix::io::Errno> for Code {
    fn from(errno: rustix::io::Errno) -> Self {
        std::io::Error::from(errno).into()
    }
}
