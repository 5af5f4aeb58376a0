//! Shared by the load generator and the ceiling endpoint: the few frames of the wire format that they use.
//!
//! All brokers that klamm is compared with support Produce v9 and Fetch v12 (names, not ids; flexible headers). klamm
//! itself uses nothing from here.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};

pub mod members;
pub mod process;
pub mod requests;
pub mod share;
pub mod transactions;

pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
pub const PRODUCE_VERSION: i16 = 9;
pub const FETCH_VERSION: i16 = 12;

/// An unsigned varint.
pub fn put_uvarint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads an unsigned varint at `at`, and advances `at`.
pub fn get_uvarint(bytes: &[u8], at: &mut usize) -> usize {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
        shift += 7;
    }
}

fn put_varint(out: &mut Vec<u8>, value: i64) {
    put_uvarint(out, ((value << 1) ^ (value >> 63)) as usize);
}

/// An uncompressed batch of `count` records without keys whose values are `value_bytes` long.
pub fn batch(count: usize, value_bytes: usize, timestamp_ms: i64) -> Vec<u8> {
    keyed_batch(count, None, value_bytes, timestamp_ms)
}

/// The same with a key of `key_bytes` for each record.
pub fn keyed_batch(count: usize, key_bytes: Option<usize>, value_bytes: usize, timestamp_ms: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(count * (value_bytes + 16) + 61);
    let last = (count - 1) as i32;
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&(-1i32).to_be_bytes());
    out.push(2);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&0i16.to_be_bytes());
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&timestamp_ms.to_be_bytes());
    out.extend_from_slice(&timestamp_ms.to_be_bytes());
    out.extend_from_slice(&(-1i64).to_be_bytes());
    out.extend_from_slice(&(-1i16).to_be_bytes());
    out.extend_from_slice(&(-1i32).to_be_bytes());
    out.extend_from_slice(&(count as i32).to_be_bytes());
    let mut record = Vec::with_capacity(value_bytes + 16);
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for index in 0..count {
        record.clear();
        record.push(0);
        put_varint(&mut record, 0);
        put_varint(&mut record, index as i64);
        put_varint(&mut record, key_bytes.map_or(-1, |bytes| bytes as i64));
        put_noise(&mut record, key_bytes.unwrap_or(0), &mut noise);
        put_varint(&mut record, value_bytes as i64);
        put_noise(&mut record, value_bytes, &mut noise);
        put_varint(&mut record, 0);
        put_varint(&mut out, record.len() as i64);
        out.extend_from_slice(&record);
    }
    let length = (out.len() - 12) as i32;
    out[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&out[21..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    out
}

fn put_noise(out: &mut Vec<u8>, bytes: usize, noise: &mut u64) {
    for _ in 0..bytes {
        *noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        out.push((*noise >> 56) as u8);
    }
}

fn header(api: i16, version: i16, correlation: i32) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend_from_slice(&api.to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&correlation.to_be_bytes());
    out.extend_from_slice(&4i16.to_be_bytes());
    out.extend_from_slice(b"load");
    out.push(0);
    out
}

fn finish(mut out: Vec<u8>) -> Vec<u8> {
    let length = (out.len() - 4) as i32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    put_uvarint(out, name.len() + 1);
    out.extend_from_slice(name.as_bytes());
}

/// A complete Produce v9 frame with one batch for each of `partitions`.
pub fn produce_frame(correlation: i32, topic: &str, partitions: &[i32], acks: i16, batch: &[u8]) -> Vec<u8> {
    let mut out = header(PRODUCE, PRODUCE_VERSION, correlation);
    out.push(0);
    out.extend_from_slice(&acks.to_be_bytes());
    out.extend_from_slice(&30_000i32.to_be_bytes());
    put_uvarint(&mut out, 2);
    put_name(&mut out, topic);
    put_uvarint(&mut out, partitions.len() + 1);
    for partition in partitions {
        out.extend_from_slice(&partition.to_be_bytes());
        put_uvarint(&mut out, batch.len() + 1);
        out.extend_from_slice(batch);
        out.push(0);
    }
    out.extend_from_slice(&[0, 0]);
    finish(out)
}

/// A complete Fetch v12 frame without a session for one partition.
pub fn fetch_frame(correlation: i32, topic: &str, partition: i32, offset: i64, max_bytes: i32) -> Vec<u8> {
    let mut out = header(FETCH, FETCH_VERSION, correlation);
    out.extend_from_slice(&(-1i32).to_be_bytes());
    out.extend_from_slice(&500i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&max_bytes.to_be_bytes());
    out.push(0);
    out.extend_from_slice(&0i32.to_be_bytes());
    out.extend_from_slice(&(-1i32).to_be_bytes());
    put_uvarint(&mut out, 2);
    put_name(&mut out, topic);
    put_uvarint(&mut out, 2);
    out.extend_from_slice(&partition.to_be_bytes());
    out.extend_from_slice(&(-1i32).to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&(-1i32).to_be_bytes());
    out.extend_from_slice(&(-1i64).to_be_bytes());
    out.extend_from_slice(&max_bytes.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    put_uvarint(&mut out, 1);
    put_uvarint(&mut out, 1);
    out.push(0);
    finish(out)
}

/// Reads one frame's body into the front of `buffer`, which grows as needed; returns its length, or `None` at the
/// end.
pub fn read_frame(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let mut length = [0; 4];
    if let Err(error) = stream.read_exact(&mut length) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let length = u32::from_be_bytes(length) as usize;
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    stream.read_exact(&mut buffer[..length])?;
    Ok(Some(length))
}

/// A connection without Nagle's delay and without pacing.
pub fn connect(address: &str) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for address in address.to_socket_addrs()? {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        send_unpaced(&socket);
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Ok(()) => return Ok(socket.into()),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Disables the pacing of BBR if that is the system's default: its timers make a measurement vary by a factor of
/// three. Only before the socket connects, or on the listener before it accepts: a connection that began with BBR is paced
/// for good, whatever replaces BBR.
#[cfg(target_os = "linux")]
pub fn send_unpaced(socket: &impl AsRawFd) {
    const PLAIN: &[u8] = b"reno";
    // SAFETY: the length is that of the name; the call only reads the name.
    unsafe {
        let len = PLAIN.len() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, PLAIN.as_ptr().cast(), len);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn send_unpaced(_socket: &impl AsRawFd) {}

/// Writes all of `frame`.
pub fn send(stream: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    stream.write_all(frame)
}
