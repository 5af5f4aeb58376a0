//! Reads everything from the start of partition 0.

use std::io;

use klamm_load::{connect, fetch_frame, get_uvarint, read_frame, send};

use crate::options::Options;

pub fn fetch(options: &Options) -> io::Result<String> {
    let (wanted, passes) = (options.number("bytes", 500_000_000), options.number("passes", 1));
    let (mut bytes, mut records) = (0, 0);
    for _ in 0..passes {
        let (of_pass, in_pass) = once(options, wanted)?;
        bytes += of_pass;
        records += in_pass;
    }
    Ok(format!("\"bytes\":{bytes},\"records\":{records}"))
}

/// From offset 0 on, over a new connection.
fn once(options: &Options, wanted: u64) -> io::Result<(u64, i64)> {
    let mut stream = connect(options.address(0))?;
    let (mut buffer, mut offset, mut bytes, mut records) = (Vec::new(), 0i64, 0u64, 0i64);
    while bytes < wanted {
        let frame = fetch_frame(1, options.text("topic", "bench"), 0, offset, options.number("max", 1 << 20) as i32);
        send(&mut stream, &frame)?;
        let length = read_frame(&mut stream, &mut buffer)?.ok_or_else(|| io::Error::other("closed by the broker"))?;
        let (next, size) = last_offset(&buffer[..length])?;
        if next <= offset {
            break;
        }
        records += next - offset;
        offset = next;
        bytes += size as u64;
    }
    Ok((bytes, records))
}

/// The offset after the last complete batch of a Fetch v12 response for one partition, and the size of its records.
pub fn last_offset(body: &[u8]) -> io::Result<(i64, usize)> {
    let mut at = 4 + 1 + 4 + 2 + 4;
    if get_uvarint(body, &mut at) < 2 {
        return Err(io::Error::other("the answer names no topic"));
    }
    let name = get_uvarint(body, &mut at) - 1;
    at += name;
    get_uvarint(body, &mut at);
    let code = i16::from_be_bytes([body[at + 4], body[at + 5]]);
    if code != 0 {
        return Err(io::Error::other(format!("fetch failed with error code {code}")));
    }
    at += 4 + 2 + 8 + 8 + 8;
    let aborted = get_uvarint(body, &mut at);
    if aborted > 1 {
        return Err(io::Error::other("aborted transactions in a benchmark topic"));
    }
    at += 4;
    let size = get_uvarint(body, &mut at).saturating_sub(1);
    let records = &body[at..at + size];
    let (mut at, mut next) = (0, 0);
    while let Some(view) = klamm_records::header::Header::at_start_of(&records[at..]) {
        let Some(whole) = view.size().filter(|whole| at + whole <= size) else { break };
        next = view.next_offset();
        at += whole;
    }
    Ok((next, size))
}
