//! [`Reader`]: finds the frames of a recording, however it ended.
//!
//! Nothing in the file is believed before it is compared with how much of it there is.

use std::fmt;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use cuframes_core::FrameMeta;

use super::ebml::{Bad, Elements, Head, Id, MAX_HEAD, head};
use super::writer::{BLOCK_HEAD, TRACK};
use super::{ADDITION, ADDITION_TYPE, Facts, STREAM_LEN, Stream, VERSION};

/// Reads a recording from its start to its end, and again.
#[derive(Debug)]
pub(crate) struct Reader<R: Read + Seek> {
    input: BufReader<R>,
    stream: Stream,
    /// Where the frames start.
    start: u64,
    /// Where the next element is.
    position: u64,
    /// Where the segment ends, or the file if that is shorter.
    end: u64,
    /// What is there.
    at_end: Tail,
}

/// A whole frame in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) facts: Facts,
    /// Where its bytes are.
    position: u64,
    len: u64,
}

/// What follows the last whole frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tail {
    /// The recording was completed.
    Complete,
    /// Nothing, or a part of a frame: it was not completed, or its end was cut off.
    Cut,
    /// Something that no recording has, at this position.
    Damaged(u64),
}

impl<R: Read + Seek> Reader<R> {
    /// Reads what is said of the stream.
    pub(crate) fn open(mut input: R) -> Result<Self, OpenError> {
        let len = input.seek(SeekFrom::End(0))?;
        let mut input = BufReader::new(input);
        input.rewind()?;
        let mut bytes = Vec::new();
        input.by_ref().take(MAX_START).read_to_end(&mut bytes)?;
        let is_all = u64::try_from(bytes.len()).is_ok_and(|read| read >= len);
        let Start { stream, end: start, segment_end } =
            parse_start(&bytes).map_err(|problem| match problem {
                OpenError::Cut if !is_all => OpenError::Malformed,
                problem => problem,
            })?;
        let (end, at_end) = match segment_end {
            Some(end) if end == len => (len, Tail::Complete),
            Some(end) if end < len => (end, Tail::Damaged(end)),
            _ => (len, Tail::Cut),
        };
        Ok(Self { input, stream, start, position: start, end, at_end })
    }

    pub(crate) const fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whether it was not completed, or its end was cut off.
    pub(crate) fn is_cut(&self) -> bool {
        self.at_end == Tail::Cut
    }

    /// How many of how many bytes are read.
    pub(crate) const fn progress(&self) -> (u64, u64) {
        (self.position, self.end)
    }

    /// Starts again.
    pub(crate) const fn rewind(&mut self) {
        self.position = self.start;
    }

    /// The next whole frame, or what there is instead.
    pub(crate) fn next(&mut self) -> io::Result<Result<Frame, Tail>> {
        loop {
            let at = self.position;
            if at >= self.end {
                return Ok(Err(self.at_end));
            }
            let element = match self.element(at, self.end)? {
                Ok(element) => element,
                Err(bad) => return Ok(Err(self.tail(bad, at))),
            };
            match element.id {
                // Its elements come next.
                Id::CLUSTER => self.position = element.start,
                Id::BLOCK_GROUP => {
                    let frame = self.frame(element)?;
                    if frame.is_some() {
                        self.position = element.end;
                    }
                    return Ok(frame.ok_or(Tail::Damaged(at)));
                }
                id if SKIPPED.contains(&id)
                    || NUMBERS.contains(&id) && element.end - element.start <= MAX_NUMBER =>
                {
                    self.position = element.end;
                }
                _ => return Ok(Err(Tail::Damaged(at))),
            }
        }
    }

    /// Reads the bytes of a frame.
    pub(crate) fn read(&mut self, frame: &Frame, into: &mut Vec<u8>) -> io::Result<()> {
        // As much as was in the file when it was opened.
        into.resize(usize::try_from(frame.len).unwrap_or(usize::MAX), 0);
        self.seek(frame.position)?;
        self.input.read_exact(into)
    }

    /// What is in a block group that is all there; `None` if it isn't what we write.
    fn frame(&mut self, group: Element) -> io::Result<Option<Frame>> {
        let (mut block, mut facts) = (None, None);
        let mut at = group.start;
        while at < group.end {
            let Ok(element) = self.element(at, group.end)? else { return Ok(None) };
            match element.id {
                Id::BLOCK if block.is_none() => {
                    let mut start = [0; BLOCK_HEAD.len()];
                    let Some(position) = element.start.checked_add(4).filter(|end| *end <= element.end)
                    else {
                        return Ok(None);
                    };
                    self.seek(element.start)?;
                    self.input.read_exact(&mut start)?;
                    // Several frames in one block would be another matter.
                    if start[0] != BLOCK_HEAD[0] || start[3] & LACING != 0 {
                        return Ok(None);
                    }
                    block = Some((position, element.end - position));
                }
                Id::BLOCK_ADDITIONS if facts.is_none() && element.end - element.start <= MAX_ADDITIONS => {
                    let mut bytes = Vec::new();
                    self.seek(element.start)?;
                    self.input.by_ref().take(element.end - element.start).read_to_end(&mut bytes)?;
                    facts = find_facts(&bytes);
                }
                _ => {}
            }
            at = element.end;
        }
        let meta = &self.stream.meta;
        Ok(match (block, facts) {
            (Some((position, len)), Some(facts))
                if facts.stored_bytes(meta) == len && facts.written_bytes <= meta.frame_size_bytes =>
            {
                Some(Frame { facts, position, len })
            }
            _ => None,
        })
    }

    /// The element here, which ends before `end` does.
    fn element(&mut self, at: u64, end: u64) -> io::Result<Result<Element, Bad>> {
        let mut bytes = [0; MAX_HEAD];
        let left = usize::try_from(end.saturating_sub(at)).map_or(MAX_HEAD, |left| left.min(MAX_HEAD));
        let bytes = bytes.get_mut(..left).unwrap_or_default();
        self.seek(at)?;
        self.input.read_exact(bytes)?;
        Ok(head(bytes).and_then(|Head { id, len, body }| {
            let start = at + len;
            // Of a cluster the start alone counts: it may be longer than the file, or without an end.
            let body = if id == Id::CLUSTER { 0 } else { body.ok_or(Bad::Malformed)? };
            let end = start.checked_add(body).filter(|last| *last <= end).ok_or(Bad::Cut)?;
            Ok(Element { id, start, end })
        }))
    }

    fn seek(&mut self, to: u64) -> io::Result<()> {
        let here = self.input.stream_position()?;
        // Both are within a file, whose length is signed.
        self.input.seek_relative(to.wrapping_sub(here).cast_signed())
    }

    /// What it means that no whole element is here.
    fn tail(&self, bad: Bad, at: u64) -> Tail {
        match bad {
            Bad::Cut if self.at_end == Tail::Cut => Tail::Cut,
            _ => Tail::Damaged(at),
        }
    }
}

/// Where an element's body is.
#[derive(Clone, Copy, Debug)]
struct Element {
    id: Id,
    start: u64,
    end: u64,
}

/// What comes before the first frame.
struct Start {
    stream: Stream,
    end: u64,
    segment_end: Option<u64>,
}

/// Looks for what is said of the stream.
fn parse_start(bytes: &[u8]) -> Result<Start, OpenError> {
    let mut elements = Elements(bytes);
    match elements.next() {
        Some(Ok((Id::EBML, header))) => match Elements(header).find(Id::DOC_TYPE) {
            Some(b"matroska" | b"webm") => {}
            _ => return Err(OpenError::NotMatroska),
        },
        Some(Err(Bad::Cut)) if bytes.starts_with(&Id::EBML.0.to_be_bytes()) => return Err(OpenError::Cut),
        _ => return Err(OpenError::NotMatroska),
    }
    let segment = head(elements.0)?;
    if segment.id != Id::SEGMENT {
        return Err(OpenError::Malformed);
    }
    let position = |rest: &[u8]| u64::try_from(bytes.len() - rest.len()).unwrap_or(u64::MAX);
    let segment_start = position(elements.0).saturating_add(segment.len);
    let segment_end = segment.body.map(|body| segment_start.saturating_add(body));
    let mut elements = Elements(elements.0.get(usize::try_from(segment.len).unwrap_or(0)..).unwrap_or(&[]));
    let mut title = String::new();
    while let Some((id, body)) = elements.next().transpose()? {
        match id {
            Id::INFO => {
                let found = Elements(body).find(Id::TITLE).unwrap_or_default();
                title = String::from_utf8_lossy(found).into();
            }
            Id::TRACKS => {
                let (meta, epoch) = parse_tracks(body)?;
                let stream = Stream { title, meta, epoch };
                return Ok(Start { stream, end: position(elements.0), segment_end });
            }
            Id::CLUSTER => return Err(OpenError::Malformed),
            _ => {}
        }
    }
    Err(OpenError::Cut)
}

/// The geometry of the stream, and its publisher's epoch.
fn parse_tracks(tracks: &[u8]) -> Result<(FrameMeta, u64), OpenError> {
    let track = Elements(tracks).find(Id::TRACK_ENTRY).map(Elements).ok_or(OpenError::Malformed)?;
    let mapping = track.find(Id::BLOCK_ADDITION_MAPPING).map(Elements).ok_or(OpenError::Foreign)?;
    let is_ours = track.find_u64(Id::TRACK_NUMBER) == Some(TRACK.into())
        && mapping.find_u64(Id::BLOCK_ADD_ID_TYPE) == Some(ADDITION_TYPE.into())
        && mapping.find_u64(Id::BLOCK_ADD_ID_VALUE) == Some(ADDITION.into());
    let said = mapping.find(Id::BLOCK_ADD_ID_EXTRA_DATA).filter(|_| is_ours).ok_or(OpenError::Foreign)?;
    let (version, said) = said.split_first_chunk().ok_or(OpenError::Malformed)?;
    match u32::from_le_bytes(*version) {
        VERSION => {}
        other => return Err(OpenError::Version(other)),
    }
    let (epoch, meta) = said.split_first_chunk().ok_or(OpenError::Malformed)?;
    let meta = meta.try_into().map_err(|_| OpenError::Malformed)?;
    let meta = FrameMeta::from_bytes(meta);
    meta.validate().map_err(|error| OpenError::Meta(error.to_string()))?;
    Ok((meta, u64::from_le_bytes(*epoch)))
}

/// What is said of a frame.
fn find_facts(additions: &[u8]) -> Option<Facts> {
    let mut all = Elements(additions).map_while(Result::ok).filter(|(id, _)| *id == Id::BLOCK_MORE);
    let ours = all.find_map(|(_, more)| {
        let more = Elements(more);
        more.find(Id::BLOCK_ADDITIONAL).filter(|_| more.find_u64(Id::BLOCK_ADD_ID) == Some(ADDITION.into()))
    });
    ours.and_then(Facts::from_bytes)
}

/// Why a file can't be replayed. It says what to do about it.
#[derive(Debug)]
pub(crate) enum OpenError {
    Io(io::Error),
    NotMatroska,
    /// Matroska that somebody else made.
    Foreign,
    Version(u32),
    /// It ends before the first frame.
    Cut,
    Malformed,
    Meta(String),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Bad> for OpenError {
    fn from(bad: Bad) -> Self {
        match bad {
            Bad::Cut => Self::Cut,
            Bad::Malformed => Self::Malformed,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let convert = "publish it with ffmpeg -i FILE -pix_fmt yuv420p -f yuv4mpegpipe - | cuframes publish KEY --y4m -";
        match self {
            Self::Io(error) => write!(f, "{error}; check that it is a file that you may read"),
            Self::NotMatroska => {
                write!(
                    f,
                    "it is not a recording; make one with cuframes record, or, if it is a video, {convert}"
                )
            }
            Self::Foreign => write!(f, "it is a video that cuframes record has not made; {convert}"),
            Self::Version(version) => write!(
                f,
                "it has version {version} of the layout, and this program knows version {VERSION}; use the program that made it"
            ),
            Self::Cut => write!(f, "it ends before its first frame; record it again"),
            Self::Malformed => write!(f, "its start is damaged; take it from a copy, or record it again"),
            Self::Meta(error) => write!(f, "its geometry is damaged: {error}; record it again"),
        }
    }
}

/// More than comes before the first frame, whoever has added to it.
const MAX_START: u64 = 64 << 10;
/// More than is said of a frame, whoever has added to it.
const MAX_ADDITIONS: u64 = 4096;
/// The flags of a block that holds more than one frame.
const LACING: u8 = 0x06;
/// What a cluster says of itself; of its frames more is said elsewhere.
const NUMBERS: [Id; 3] = [Id::TIMESTAMP, Id::POSITION, Id::PREV_SIZE];
/// Bytes of a number.
const MAX_NUMBER: u64 = 8;
/// What may be between frames and has nothing to do with them.
const SKIPPED: [Id; 9] = [
    Id::VOID,
    Id::CRC_32,
    Id::CUES,
    Id::SEEK_HEAD,
    Id::INFO,
    Id::TRACKS,
    Id::CHAPTERS,
    Id::ATTACHMENTS,
    Id::TAGS,
];

const _: () = assert!(STREAM_LEN == 4 + 8 + size_of::<[u8; 64]>());
