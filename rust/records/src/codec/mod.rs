//! The five codecs of record batches. One decompressor serves them all and never produces more than its limit.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use crate::error::RecordsError;

/// How the records of a batch are compressed. The discriminants are the ids in the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Codec {
    /// All codecs, by id.
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// The codec of an id, `None` for 5 to 7.
    #[inline]
    pub fn from_id(id: i16) -> Option<Self> {
        usize::try_from(id).ok().and_then(|id| Self::ALL.get(id)).copied()
    }

    /// The codec of a name in a configuration (`none`, `gzip`, `snappy`, `lz4`, `zstd`).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// The id in the attributes of a batch.
    #[inline]
    pub fn id(self) -> i16 {
        self as i16
    }

    /// The name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// The levels that the topic configs `compression.<codec>.level` take, and their default.
    ///
    /// snappy has none. lz4's default is its fast compressor, as in Apache Kafka; every other level is its slow one.
    pub fn levels(self) -> Option<Levels> {
        match self {
            Codec::None | Codec::Snappy => None,
            Codec::Gzip => Some(Levels { min: 1, max: 9, default: -1 }),
            Codec::Lz4 => Some(Levels { min: 1, max: 17, default: 9 }),
            Codec::Zstd => Some(Levels { min: -131_072, max: 22, default: 3 }),
        }
    }
}

impl std::fmt::Display for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The levels of a codec; the default is allowed even when it is outside the range (gzip's -1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    pub min: i32,
    pub max: i32,
    pub default: i32,
}

/// A codec and the level to compress with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    codec: Codec,
    level: i32,
}

impl Compression {
    /// No compression.
    pub const NONE: Compression = Compression { codec: Codec::None, level: 0 };

    /// A codec at its default level.
    pub fn of(codec: Codec) -> Self {
        Self { codec, level: codec.levels().map_or(0, |levels| levels.default) }
    }

    /// A codec at a level; `None` when the codec has no such level.
    pub fn at_level(codec: Codec, level: i32) -> Option<Self> {
        let levels = codec.levels()?;
        let known = level == levels.default || (levels.min..=levels.max).contains(&level);
        known.then_some(Self { codec, level })
    }

    /// The level of lz4's slow compressor; `None` for the fast one.
    fn slow_lz4_level(self) -> Option<i32> {
        Codec::Lz4.levels().filter(|levels| levels.default != self.level).map(|_| self.level)
    }

    /// The codec.
    pub fn codec(self) -> Codec {
        self.codec
    }

    /// Appends the compressed form of `raw` to `out`.
    pub fn compress(self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), RecordsError> {
        match self.codec {
            Codec::None => {
                out.extend_from_slice(raw);
                Ok(())
            }
            Codec::Gzip => gzip::compress(raw, self.level, out),
            Codec::Snappy => snappy::compress(raw, out),
            Codec::Lz4 => lz4::compress(raw, self.slow_lz4_level(), out),
            Codec::Zstd => zstd::compress(raw, self.level, out),
        }
    }
}

/// Decompressor states that are worth keeping between batches. One per thread is enough.
#[derive(Default)]
pub struct Contexts {
    gzip: Option<gzip::Context>,
    zstd: Option<zstd::Context>,
}

impl Contexts {
    /// No states: each is created when first used.
    pub const fn new() -> Self {
        Self { gzip: None, zstd: None }
    }
}

// What a step may produce where the codec leaves the choice.
const STEP_BYTES: usize = 64 * 1024;

/// Appends `len` zero bytes; reserves no more memory than the remaining room could need.
fn extend(out: &mut Vec<u8>, len: usize, room: usize) -> Result<(), StepError> {
    let spare = out.capacity() - out.len();
    if spare < len {
        out.try_reserve_exact(out.len().min(room.saturating_add(1)).max(len)).map_err(|_| StepError::NoMemory)?;
    }
    out.resize(out.len() + len, 0);
    Ok(())
}

// One byte more than the room, to distinguish a stream that ends exactly there from a longer one.
fn step_bytes(room: usize) -> usize {
    STEP_BYTES.min(room.saturating_add(1))
}

/// Why a step failed; the decompressor adds the codec and the limit.
enum StepError {
    /// The output would exceed the given room.
    Full,
    NoMemory,
    Corrupt(&'static str),
}

type Step = Result<Progress, StepError>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    More,
    Ended,
}

enum Inner<'a> {
    None(&'a [u8]),
    Gzip(gzip::Decoder<'a>),
    Snappy(snappy::Decoder<'a>),
    Lz4(lz4::Decoder<'a>),
    Zstd(zstd::Decoder<'a>),
}

/// Decompresses one payload in steps.
///
/// The caller owns the memory: a step appends at most 64 KiB, or one block of snappy or lz4, to the caller's buffer,
/// and all steps together never more than the limit.
pub struct Decompressor<'a> {
    codec: Codec,
    inner: Inner<'a>,
    produced: usize,
    limit: usize,
}

impl<'a> Decompressor<'a> {
    /// A decompressor of `payload` that refuses to produce more than `limit` bytes.
    pub fn new(codec: Codec, payload: &'a [u8], limit: usize, contexts: &'a mut Contexts) -> Self {
        let inner = match codec {
            Codec::None => Inner::None(payload),
            Codec::Gzip => Inner::Gzip(gzip::Decoder::new(payload, contexts.gzip.get_or_insert_default())),
            Codec::Snappy => Inner::Snappy(snappy::Decoder::new(payload)),
            Codec::Lz4 => Inner::Lz4(lz4::Decoder::new(payload)),
            Codec::Zstd => Inner::Zstd(zstd::Decoder::new(payload, contexts.zstd.get_or_insert_default())),
        };
        Self { codec, inner, produced: 0, limit }
    }

    /// Appends the next piece to `out`; `false` once the end is reached.
    pub fn step(&mut self, out: &mut Vec<u8>) -> Result<bool, RecordsError> {
        let before = out.len();
        let room = self.limit - self.produced;
        let step = match &mut self.inner {
            Inner::None(payload) => copy(payload, out, room),
            Inner::Gzip(decoder) => decoder.step(out, room),
            Inner::Snappy(decoder) => decoder.step(out, room),
            Inner::Lz4(decoder) => decoder.step(out, room),
            Inner::Zstd(decoder) => decoder.step(out, room),
        };
        let made = out.len() - before;
        if made > room {
            out.truncate(before + room);
            return Err(RecordsError::DecompressedTooLarge { max: self.limit });
        }
        self.produced += made;
        match step {
            Ok(progress) => Ok(progress == Progress::More),
            Err(StepError::Full) => Err(RecordsError::DecompressedTooLarge { max: self.limit }),
            Err(StepError::NoMemory) => Err(RecordsError::NoMemory),
            Err(StepError::Corrupt(what)) => Err(RecordsError::BadCompression { codec: self.codec, what }),
        }
    }

    /// Appends everything to `out`.
    pub fn read_to_end(&mut self, out: &mut Vec<u8>) -> Result<(), RecordsError> {
        while self.step(out)? {}
        Ok(())
    }
}

fn copy(payload: &mut &[u8], out: &mut Vec<u8>, room: usize) -> Step {
    if payload.len() > room {
        return Err(StepError::Full);
    }
    out.try_reserve(payload.len()).map_err(|_| StepError::NoMemory)?;
    out.extend_from_slice(std::mem::take(payload));
    Ok(Progress::Ended)
}
