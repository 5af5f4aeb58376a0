//! Which compressed data the codecs accept and reject, and the limits on decompressed sizes.

use klamm_records::codec::{Contexts, Decompressor};
use klamm_records::{Codec, Compression, RecordsError};

const LIMIT: usize = 1 << 20;

fn decompress(codec: Codec, payload: &[u8], limit: usize) -> Result<Vec<u8>, RecordsError> {
    let mut out = Vec::new();
    let result = Decompressor::new(codec, payload, limit, &mut Contexts::new()).read_to_end(&mut out);
    assert!(out.len() <= limit, "{codec}: {} bytes given out", out.len());
    assert!(out.capacity() <= 3 * limit + 200_000, "{codec}: {} bytes taken", out.capacity());
    result.map(|()| out)
}

fn compress(codec: Codec, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Compression::of(codec).compress(raw, &mut out).expect("any bytes compress");
    out
}

fn compressed_codecs() -> impl Iterator<Item = Codec> {
    Codec::ALL.into_iter().filter(|codec| *codec != Codec::None)
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| b"the same again "[at % 15] ^ (at / 9000) as u8).collect()
}

#[test]
fn ids_and_names_are_those_of_kafka() {
    let names: Vec<_> = (0..8).map(|id| Codec::from_id(id).map(Codec::name)).collect();
    assert_eq!(names[..5], [Some("none"), Some("gzip"), Some("snappy"), Some("lz4"), Some("zstd")]);
    assert_eq!(names[5..], [None, None, None]);
    assert_eq!(Codec::from_id(-1), None);
    assert_eq!(Codec::from_name("lz4"), Some(Codec::Lz4));
    assert_eq!(Codec::from_name("LZ4"), None);
}

#[test]
fn levels_have_the_limits_of_kafka() {
    let taken = [(Codec::Gzip, -1), (Codec::Gzip, 9), (Codec::Lz4, 1), (Codec::Zstd, -131_072), (Codec::Zstd, 22)];
    for (codec, level) in taken {
        let mut out = Vec::new();
        let compression = Compression::at_level(codec, level).expect("a level");
        compression.compress(&text(5000), &mut out).expect("any bytes compress");
        assert_eq!(decompress(codec, &out, LIMIT), Ok(text(5000)));
    }
    let refused = [(Codec::Gzip, 0), (Codec::Gzip, 10), (Codec::Lz4, 18), (Codec::Zstd, 23), (Codec::Snappy, 1)];
    assert!(refused.into_iter().all(|(codec, level)| Compression::at_level(codec, level).is_none()));
}

#[test]
fn a_higher_level_of_lz4_compresses_better() {
    let raw: Vec<u8> = (0..60_000u32).flat_map(|at| (at * at / 77 % 251).to_le_bytes()).collect();
    let size = |level| {
        let mut out = Vec::new();
        Compression::at_level(Codec::Lz4, level)
            .expect("a level")
            .compress(&raw, &mut out)
            .expect("any bytes compress");
        assert_eq!(decompress(Codec::Lz4, &out, LIMIT).as_ref(), Ok(&raw), "level {level}");
        out.len()
    };
    let sizes: Vec<usize> = (1..=17).map(size).collect();
    assert!(sizes[16] < sizes[2], "{sizes:?}");
    assert!(sizes[16] < sizes[8], "the default is the fast compressor: {sizes:?}");
}

#[test]
fn every_size_around_the_blocks_round_trips() {
    for codec in Codec::ALL {
        for size in [0, 1, 15, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 131_073, 400_000] {
            let raw = text(size);
            assert_eq!(decompress(codec, &compress(codec, &raw), size.max(1)), Ok(raw), "{codec} {size}");
        }
    }
}

#[test]
fn the_limit_is_exact() {
    let raw = text(200_000);
    for codec in Codec::ALL {
        let payload = compress(codec, &raw);
        assert_eq!(decompress(codec, &payload, raw.len()).as_ref(), Ok(&raw));
        for max in [raw.len() - 1, 65_536, 1, 0] {
            assert_eq!(decompress(codec, &payload, max), Err(RecordsError::DecompressedTooLarge { max }), "{codec}");
        }
    }
}

#[test]
fn bombs_are_refused_at_the_limit() {
    let zeroes = vec![0; 64 << 20];
    for codec in compressed_codecs() {
        let bomb = compress(codec, &zeroes);
        assert_eq!(decompress(codec, &bomb, LIMIT), Err(RecordsError::DecompressedTooLarge { max: LIMIT }), "{codec}");
    }
}

#[test]
fn a_cut_stream_is_refused() {
    let raw = text(70_000);
    for codec in compressed_codecs() {
        let payload = compress(codec, &raw);
        for cut in (0..payload.len()).step_by(payload.len() / 300 + 1) {
            let result = decompress(codec, &payload[..cut], LIMIT);
            // Snappy chunks do not contain their number: a truncation between two gives a shorter valid stream.
            let shorter = codec == Codec::Snappy && result.as_ref().is_ok_and(|out| out.len() < raw.len());
            assert!(shorter || matches!(result, Err(RecordsError::BadCompression { .. })), "{codec} cut at {cut}");
        }
    }
}

#[test]
fn concatenated_streams_are_read() {
    let (first, second) = (text(40_000), text(100));
    for codec in compressed_codecs() {
        let both = [compress(codec, &first), compress(codec, &second)].concat();
        assert_eq!(decompress(codec, &both, LIMIT), Ok([first.clone(), second.clone()].concat()), "{codec}");
        let followed = [compress(codec, &first), b"garbage".to_vec()].concat();
        assert!(decompress(codec, &followed, LIMIT).is_err(), "{codec}");
    }
}

#[test]
fn gzip_headers_with_every_field_are_read() {
    let plain = compress(Codec::Gzip, b"records");
    let mut full = plain[..10].to_vec();
    full[3] = 0x1e;
    full.extend(b"\x03\0abc");
    full.extend(b"name\0comment\0\x12\x34");
    full.extend(&plain[10..]);
    assert_eq!(decompress(Codec::Gzip, &full, LIMIT), Ok(b"records".to_vec()));
    for (at, value) in [(0, 0), (2, 7), (3, 0x20), (plain.len() - 1, 1), (plain.len() - 5, 0)] {
        let mut damaged = plain.clone();
        damaged[at] ^= value ^ if value == 0 { 0xff } else { 0 };
        assert!(decompress(Codec::Gzip, &damaged, LIMIT).is_err(), "byte {at}");
    }
}

#[test]
fn snappy_is_read_raw_and_in_chunks() {
    let raw = text(100_000);
    let block = snap::raw::Encoder::new().compress_vec(&raw).expect("small");
    assert_eq!(decompress(Codec::Snappy, &block, LIMIT), Ok(raw.clone()));
    assert!(compress(Codec::Snappy, &raw).starts_with(b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"));
    // Claims 4 GiB in seven bytes.
    let liar = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
    assert!(matches!(decompress(Codec::Snappy, &liar, usize::MAX / 8), Err(RecordsError::BadCompression { .. })));
}

#[test]
fn lz4_frames_are_checked() {
    let good = compress(Codec::Lz4, &text(1000));
    let xxh = |bytes: &[u8]| (twox_hash::XxHash32::oneshot(0, bytes) >> 8) as u8;
    let reframed = |flags: u8, block: u8| {
        let mut frame = good.clone();
        (frame[4], frame[5]) = (flags, block);
        frame[6] = xxh(&frame[4..6]);
        decompress(Codec::Lz4, &frame, LIMIT).is_ok()
    };
    assert!(reframed(0x60, 0x40) && reframed(0x60, 0x70));
    // Dependent blocks, version 0, reserved bits, dictionary, block sizes that are not assigned.
    for (flags, block) in [(0x40, 0x40), (0x20, 0x40), (0x62, 0x40), (0x61, 0x40), (0x60, 0x30), (0x60, 0xc0)] {
        assert!(!reframed(flags, block), "{flags:#x} {block:#x}");
    }
    let mut damaged = good.clone();
    damaged[6] ^= 1;
    assert!(decompress(Codec::Lz4, &damaged, LIMIT).is_err());
}

#[test]
fn lz4_checksums_are_compared() {
    let hash = |bytes: &[u8]| twox_hash::XxHash32::oneshot(0, bytes).to_le_bytes();
    let (stored, raw) = (b"stored as it is", b"stored as it isstored as it is");
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x7c, 0x40];
    frame.extend((raw.len() as u64).to_le_bytes());
    frame.push((twox_hash::XxHash32::oneshot(0, &frame[4..]) >> 8) as u8);
    for _ in 0..2 {
        frame.extend((stored.len() as u32 | 0x8000_0000).to_le_bytes());
        frame.extend(stored);
        frame.extend(hash(stored));
    }
    frame.extend([0; 4]);
    frame.extend(hash(raw));
    assert_eq!(decompress(Codec::Lz4, &frame, LIMIT), Ok(raw.to_vec()));
    for at in 15..frame.len() {
        let mut damaged = frame.clone();
        damaged[at] ^= 4;
        assert!(decompress(Codec::Lz4, &damaged, LIMIT).is_err(), "byte {at}");
    }
}

#[test]
fn a_block_larger_than_its_frame_allows_is_refused() {
    let block = lz4_flex::block::compress(&vec![0; 70_000]);
    let mut frame = compress(Codec::Lz4, b"")[..7].to_vec();
    frame.extend((block.len() as u32).to_le_bytes());
    frame.extend(&block);
    frame.extend([0; 4]);
    assert!(matches!(decompress(Codec::Lz4, &frame, LIMIT), Err(RecordsError::BadCompression { .. })));
}

#[test]
fn a_context_is_reusable_after_an_error() {
    let mut contexts = Contexts::new();
    let raw = text(300_000);
    for codec in compressed_codecs() {
        let payload = compress(codec, &raw);
        let mut damaged = payload.clone();
        let middle = damaged.len() / 2;
        damaged.truncate(middle);
        for (payload, good) in [(&damaged, false), (&payload, true), (&damaged, false), (&payload, true)] {
            let mut out = Vec::new();
            let result = Decompressor::new(codec, payload, LIMIT, &mut contexts).read_to_end(&mut out);
            assert_eq!(result.is_ok() && out == raw, good, "{codec}");
        }
    }
}
