//! The messages of the handshake: msgpack maps, every field written, in this order.
//!
//! Reading takes any order, skips keys that it does not know, takes the default for a key that is missing and the last one
//! of a key that is repeated. An array instead of a map, a key that is no string, and bytes after the end are errors.

use alloc::string::String;
use alloc::vec::Vec;

use cuframes_core::text::cut;

use crate::msgpack::{DecodeError, Dict, Problem, Reader, Wire, Writer};

/// Defines a message: each field with its type and its default; one without a default must be there.
macro_rules! message {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty $(= $default:expr)?;)*
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$doc])* $vis $field: $type,)*
        }

        impl $name {
            /// The bytes of the message.
            #[must_use]
            $vis fn encode(&self) -> Vec<u8> {
                let mut writer = Writer::default();
                self.write(&mut writer);
                writer.into_bytes()
            }

            /// Reads a message.
            ///
            /// # Errors
            /// Where the bytes are not this message, and why.
            $vis fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                let mut reader = Reader::new(bytes);
                let message = Self::read(&mut reader)?;
                reader.finish()?;
                Ok(message)
            }
        }

        impl Wire for $name {
            fn write(&self, writer: &mut Writer) {
                writer.map([$(stringify!($field)),*].len());
                $(
                    writer.str(stringify!($field));
                    self.$field.write(writer);
                )*
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                $(let mut $field: Option<$type> = None;)*
                for _ in 0..reader.map()? {
                    match reader.str()? {
                        $(stringify!($field) => {
                            let value = Wire::read(reader);
                            let within = |error: DecodeError| DecodeError {
                                field: error.field.or(Some(stringify!($field))),
                                ..error
                            };
                            $field = Some(value.map_err(within)?);
                        })*
                        _ => reader.skip()?,
                    }
                }
                Ok(Self {
                    $($field: match $field {
                        Some(value) => value,
                        None => message!(@default reader $field $($default)?),
                    },)*
                })
            }
        }
    };
    (@default $reader:ident $field:ident $default:expr) => { $default };
    (@default $reader:ident $field:ident) => {
        return Err(DecodeError { field: Some(stringify!($field)), ..$reader.fault(Problem::Missing) })
    };
}

message! {
    /// HELLO and READY, from the participant, on the handshake socket (the wire's `ReadyMessage`).
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Status {
        /// [`HELLO`](Self::HELLO), [`READY`](Self::READY), or a word of the extension.
        status: Option<String> = None;
        /// Whether the participant is on the host of the frontend.
        local: Option<bool> = None;
        /// Whether it runs without a frontend of its own.
        headless: Option<bool> = None;
        /// A hash of its configuration.
        parallel_config_hash: Option<String> = None;
    }
}

impl Status {
    /// "I am here."
    pub const HELLO: &str = "HELLO";
    /// "I can take what comes."
    pub const READY: &str = "READY";

    /// The message that our participant sends, with this word.
    #[must_use]
    pub fn new(word: &str) -> Self {
        Self {
            status: Some(word.into()),
            local: Some(true),
            headless: Some(true),
            parallel_config_hash: None,
        }
    }
}

message! {
    /// What is told beside the original, both ways, on the handshake socket: only to a peer that has shown that it knows
    /// these words.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub(crate) struct Notice {
        status: String;
        reason: Option<String> = None;
    }
}

impl Notice {
    /// Participant: "I know these words", after an INIT that has [`MARK`].
    pub(crate) const KNOWS: &str = "KNOWS";
    /// Frontend: "everybody is there".
    pub(crate) const GO: &str = "GO";
    /// Either: "the start is off", and why.
    pub(crate) const CANCEL: &str = "CANCEL";

    /// A reason may name what a peer sent, or thousands of participants: a long one is cut, so that it arrives.
    pub(crate) fn new(word: &str, reason: Option<&str>) -> Self {
        Self { status: word.into(), reason: reason.map(|reason| cut(reason, MAX_REASON).into()) }
    }
}

message! {
    /// Addresses of the sockets, in [`Init`].
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Addresses {
        /// ROUTER sockets; a participant registers at the first.
        inputs: Vec<String> = Vec::new();
        /// PULL sockets; a participant connects to the first.
        outputs: Vec<String> = Vec::new();
        /// Not used here.
        coordinator_input: Option<String> = None;
        /// Not used here.
        coordinator_output: Option<String> = None;
        /// Not used here.
        frontend_stats_publish_address: Option<String> = None;
    }
}

message! {
    /// INIT, the answer to HELLO (the wire's `HandshakeInitMessage`).
    #[derive(Clone, PartialEq, Debug, Default)]
    pub struct Init {
        /// Where to connect.
        addresses: Addresses;
        /// What the participants are to know: here the format of the frames.
        parallel_config: Dict = Dict::new();
    }
}

impl Init {
    /// The key in [`parallel_config`](Self::parallel_config) of the stream's own key.
    pub const STREAM: &str = "stream";

    /// The key of the stream that starts, if it is told.
    #[must_use]
    pub fn stream(&self) -> Option<&str> {
        self.parallel_config.get(Self::STREAM)?.as_str()
    }

    /// Whether whoever sent this knows the words of the extension.
    pub(crate) fn is_marked(&self) -> bool {
        self.parallel_config.get(MARK).is_some()
    }
}

message! {
    /// What a participant registers with, on the input socket (the wire's `EngineCoreReadyResponse`).
    #[derive(Clone, PartialEq, Debug)]
    pub struct Registration {
        /// Longest sequence.
        max_model_len: i64 = 0;
        /// Blocks on its device.
        num_gpu_blocks: i64 = 0;
        /// Granularity of its prefix cache.
        prefix_granularity: i64 = 0;
        /// Address of its statistics.
        dp_stats_address: Option<String> = None;
        /// Type of its numbers.
        dtype: String = "bfloat16".into();
        /// Type of the numbers of its encoder.
        multimodal_encoder_dtype: Option<String> = None;
        /// Its version.
        vllm_version: String = String::new();
        /// Its ranks.
        world_size: i64 = 1;
        /// N: how many participants there are. Checked.
        data_parallel_size: i64 = 1;
        /// Its tensor parallelism.
        tensor_parallel_size: i64 = 1;
        /// Its pipeline stages.
        pipeline_parallel_size: i64 = 1;
        /// Its context parallelism.
        decode_context_parallel_size: i64 = 1;
        /// Its place among the N, from 0: its index less the first index. Checked.
        data_parallel_rank: i64 = 0;
        /// How many frames it may hold.
        max_num_seqs: i64 = 0;
        /// Tokens per step; may be -1.
        max_num_batched_tokens: i64 = 0;
        /// Its name.
        instance_id: String = String::new();
        /// Size of its cache.
        kv_cache_size_tokens: Option<i64> = None;
        /// Size of its cache.
        kv_cache_max_concurrency: Option<f64> = None;
        /// Where its cache tells what happens.
        kv_events_config: Option<Dict> = None;
    }
}

impl Registration {
    /// The registration of the participant of this rank among `size`; the rest are the defaults.
    #[must_use]
    pub fn new(rank: u16, size: u16) -> Self {
        Self { data_parallel_rank: rank.into(), data_parallel_size: size.into(), ..Self::default() }
    }
}

impl Default for Registration {
    /// What an empty map means.
    fn default() -> Self {
        Self::read(&mut Reader::new(&[0x80])).unwrap_or_else(|_| unreachable!("each field has a default"))
    }
}

/// The longest reason that is sent, in bytes.
const MAX_REASON: usize = 1024;

/// The key in INIT's `parallel_config` that says that the frontend knows the words of [`Notice`].
pub(crate) const MARK: &str = "cuframes";
