//! The requests of a transactional producer, and the parts of their responses. Each response is a frame's body.

use crate::{finish, get_uvarint, header, put_name, put_uvarint};

const PRODUCE: i16 = 0;
const FIND_COORDINATOR: i16 = 10;
const INIT_PRODUCER_ID: i16 = 22;
const ADD_PARTITIONS_TO_TXN: i16 = 24;
const END_TXN: i16 = 26;

pub const CONCURRENT_TRANSACTIONS: i16 = 51;
/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS.
pub const NOT_READY: [i16; 4] = [14, 15, 16, CONCURRENT_TRANSACTIONS];

const TIMEOUT_MS: i32 = 60_000;
const CORRELATION: i32 = 1;
/// Where the body of a response begins: after the correlation id and the tagged fields of the header.
const BODY: usize = 5;

/// Who adds partitions to a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// The producer, with AddPartitionsToTxn: Produce v11, EndTxn v3.
    AddsPartitions,
    /// The leader of the partition (KIP-890): Produce v12, EndTxn v5, which raises the epoch.
    Implicit,
}

/// Producer id and epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    pub producer_id: i64,
    pub epoch: i16,
}

impl Pair {
    fn read(bytes: &[u8], at: usize) -> Self {
        let producer_id = i64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Self { producer_id, epoch: code(bytes, at + 8) }
    }

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.producer_id.to_be_bytes());
        out.extend_from_slice(&self.epoch.to_be_bytes());
    }
}

fn code(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// FindCoordinator v3 of a transactional id.
pub fn find_coordinator_frame(id: &str) -> Vec<u8> {
    let mut out = header(FIND_COORDINATOR, 3, CORRELATION);
    put_name(&mut out, id);
    out.extend_from_slice(&[1, 0]);
    finish(out)
}

/// Host and port, or `None` while there is no coordinator.
pub fn found_coordinator(body: &[u8]) -> Option<String> {
    if code(body, BODY + 4) != 0 {
        return None;
    }
    let mut at = BODY + 6;
    at += get_uvarint(body, &mut at).saturating_sub(1);
    at += 4;
    let length = get_uvarint(body, &mut at) - 1;
    let host = std::str::from_utf8(&body[at..at + length]).ok()?;
    let port = u32::from_be_bytes(body[at + length..at + length + 4].try_into().ok()?);
    Some(format!("{host}:{port}"))
}

/// InitProducerId v5 without a pair.
pub fn init_frame(id: &str) -> Vec<u8> {
    let mut out = header(INIT_PRODUCER_ID, 5, CORRELATION);
    put_name(&mut out, id);
    out.extend_from_slice(&TIMEOUT_MS.to_be_bytes());
    Pair { producer_id: -1, epoch: -1 }.put(&mut out);
    out.push(0);
    finish(out)
}

/// The error code, producer id and epoch of an InitProducerId response.
pub fn initialized(body: &[u8]) -> (i16, Pair) {
    (code(body, BODY + 4), Pair::read(body, BODY + 6))
}

/// AddPartitionsToTxn v3 of one partition.
pub fn add_partition_frame(id: &str, pair: Pair, topic: &str, partition: i32) -> Vec<u8> {
    let mut out = header(ADD_PARTITIONS_TO_TXN, 3, CORRELATION);
    put_name(&mut out, id);
    pair.put(&mut out);
    put_uvarint(&mut out, 2);
    put_name(&mut out, topic);
    put_uvarint(&mut out, 2);
    out.extend_from_slice(&partition.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    finish(out)
}

/// The error code of the only partition of an AddPartitionsToTxn v3 response.
pub fn added(body: &[u8]) -> i16 {
    let mut at = BODY + 4 + 1;
    at += get_uvarint(body, &mut at) - 1;
    code(body, at + 1 + 4)
}

/// Produce with one transactional batch. `payload` is a batch without a producer.
pub fn transactional_frame(
    protocol: Protocol,
    id: &str,
    topic: &str,
    partition: i32,
    pair: Pair,
    sequence: i32,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = header(PRODUCE, if protocol == Protocol::Implicit { 12 } else { 11 }, CORRELATION);
    put_name(&mut out, id);
    out.extend_from_slice(&(-1i16).to_be_bytes());
    out.extend_from_slice(&30_000i32.to_be_bytes());
    put_uvarint(&mut out, 2);
    put_name(&mut out, topic);
    put_uvarint(&mut out, 2);
    out.extend_from_slice(&partition.to_be_bytes());
    put_uvarint(&mut out, payload.len() + 1);
    let at = out.len();
    out.extend_from_slice(payload);
    let batch = &mut out[at..];
    batch[22] |= 0x10;
    batch[43..51].copy_from_slice(&pair.producer_id.to_be_bytes());
    batch[51..53].copy_from_slice(&pair.epoch.to_be_bytes());
    batch[53..57].copy_from_slice(&sequence.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0]);
    finish(out)
}

/// The error code of the only partition of a Produce response.
pub fn produced(body: &[u8]) -> i16 {
    let mut at = BODY + 1;
    at += get_uvarint(body, &mut at) - 1;
    code(body, at + 1 + 4)
}

/// EndTxn: commit.
pub fn end_frame(protocol: Protocol, id: &str, pair: Pair) -> Vec<u8> {
    let mut out = header(END_TXN, if protocol == Protocol::Implicit { 5 } else { 3 }, CORRELATION);
    put_name(&mut out, id);
    pair.put(&mut out);
    out.extend_from_slice(&[1, 0]);
    finish(out)
}

/// The error code of an EndTxn response and, from version 5 on, the producer id and epoch to continue with.
pub fn ended(body: &[u8]) -> (i16, Option<Pair>) {
    let error = code(body, BODY + 4);
    let has_pair = error == 0 && body.len() >= BODY + 6 + 10;
    (error, has_pair.then(|| Pair::read(body, BODY + 6)))
}
