//! The ceiling: an endpoint that does the minimum that this wire format allows, as the limit to compare klamm with.
//!
//! It checks CRCs, appends with one write, optionally makes that durable, and sends files back. One thread per
//! connection, one file per partition, any topic, no indexes; for versions and metadata it answers only what
//! librdkafka requests first: `klamm-ceiling PORT DIR [durable]`.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use klamm_load::{FETCH, FETCH_VERSION, PRODUCE, PRODUCE_VERSION, get_uvarint, put_uvarint, read_frame, send_unpaced};
use klamm_records::header::{self, Header};

const METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;

struct Log {
    file: File,
    size: u64,
    next_offset: i64,
    /// (base offset, position) of every batch: the ceiling keeps its index in memory.
    batches: Vec<(i64, u64)>,
}

struct Store {
    dir: PathBuf,
    durable: bool,
    logs: Mutex<HashMap<i32, Arc<Mutex<Log>>>>,
}

impl Store {
    fn log(&self, partition: i32) -> io::Result<Arc<Mutex<Log>>> {
        let mut logs = self.logs.lock().expect("no thread panics while it holds the lock");
        if let Some(log) = logs.get(&partition) {
            return Ok(log.clone());
        }
        let path = self.dir.join(format!("{partition}.log"));
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        let log = Arc::new(Mutex::new(Log { file, size: 0, next_offset: 0, batches: Vec::new() }));
        logs.insert(partition, log.clone());
        Ok(log)
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, port, dir, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: klamm-ceiling PORT DIR [durable]");
        std::process::exit(2);
    };
    let durable = rest.first().is_some_and(|word| word == "durable");
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    send_unpaced(&listener);
    println!("ceiling on {}", listener.local_addr()?);
    let store = Arc::new(Store { dir: dir.into(), durable, logs: Mutex::default() });
    for stream in listener.incoming() {
        let (stream, store) = (stream?, store.clone());
        std::thread::spawn(move || {
            if let Err(error) = serve(stream, &store) {
                eprintln!("connection ended: {error}");
            }
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream, store: &Store) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut frame = Vec::new();
    while let Some(length) = read_frame(&mut stream, &mut frame)? {
        let body = &mut frame[..length];
        let api = i16::from_be_bytes([body[0], body[1]]);
        let correlation = [body[4], body[5], body[6], body[7]];
        let client_id = usize::from(u16::from_be_bytes([body[8], body[9]]));
        let at = 10 + client_id + 1;
        match api {
            PRODUCE => produce(&mut stream, store, body, at, correlation)?,
            FETCH => fetch(&mut stream, store, body, at, correlation)?,
            METADATA => metadata(&mut stream, body, at - 1, correlation)?,
            API_VERSIONS => api_versions(&mut stream, correlation)?,
            other => return Err(io::Error::other(format!("the ceiling does not speak API {other}"))),
        }
    }
    Ok(())
}

/// The first requests of a librdkafka client: the supported versions.
fn api_versions(stream: &mut TcpStream, correlation: [u8; 4]) -> io::Result<()> {
    // Lower versions than are supported: librdkafka uses the highest, and treats a broker without them as one of
    // 2016.
    let served = [(PRODUCE, 3, PRODUCE_VERSION), (FETCH, 4, FETCH_VERSION), (METADATA, 0, 1), (API_VERSIONS, 3, 3)];
    let mut answer = vec![0; 4];
    answer.extend_from_slice(&correlation);
    answer.extend_from_slice(&0i16.to_be_bytes());
    put_uvarint(&mut answer, served.len() + 1);
    for (api, lowest, highest) in served {
        [api, lowest, highest].iter().for_each(|word| answer.extend_from_slice(&word.to_be_bytes()));
        answer.push(0);
    }
    answer.extend_from_slice(&[0; 5]);
    send_frame(stream, answer)
}

/// Metadata v1: every requested topic has one partition, which this endpoint leads.
fn metadata(stream: &mut TcpStream, body: &[u8], at: usize, correlation: [u8; 4]) -> io::Result<()> {
    let address = stream.local_addr()?;
    let mut answer = vec![0; 4];
    answer.extend_from_slice(&correlation);
    answer.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]);
    put_string(&mut answer, address.ip().to_string().as_bytes());
    answer.extend_from_slice(&i32::from(address.port()).to_be_bytes());
    answer.extend_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
    let (mut at, count) = (at + 4, i32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]).max(0));
    answer.extend_from_slice(&count.to_be_bytes());
    for _ in 0..count {
        let length = usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
        answer.extend_from_slice(&[0, 0]);
        put_string(&mut answer, &body[at + 2..at + 2 + length]);
        // Not internal; one partition, number 0, led by broker 0, the only member of its replicas and ISR.
        answer.extend_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        (0..2).for_each(|_| answer.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0]));
        at += 2 + length;
    }
    send_frame(stream, answer)
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text);
}

fn send_frame(stream: &mut TcpStream, mut frame: Vec<u8>) -> io::Result<()> {
    let length = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&frame)
}

fn produce(stream: &mut TcpStream, store: &Store, body: &mut [u8], at: usize, correlation: [u8; 4]) -> io::Result<()> {
    let mut at = at + 1 + 2 + 4;
    get_uvarint(body, &mut at);
    let name_length = get_uvarint(body, &mut at) - 1;
    let name = body[at..at + name_length].to_vec();
    at += name_length;
    let partitions = get_uvarint(body, &mut at) - 1;
    let mut answer = vec![0; 4];
    answer.extend_from_slice(&correlation);
    answer.push(0);
    put_uvarint(&mut answer, 2);
    put_uvarint(&mut answer, name.len() + 1);
    answer.extend_from_slice(&name);
    put_uvarint(&mut answer, partitions + 1);
    for _ in 0..partitions {
        let partition = i32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        at += 4;
        let length = get_uvarint(body, &mut at) - 1;
        let offset = append(store, partition, &mut body[at..at + length])?;
        at += length + 1;
        answer.extend_from_slice(&partition.to_be_bytes());
        answer.extend_from_slice(&0i16.to_be_bytes());
        answer.extend_from_slice(&offset.to_be_bytes());
        answer.extend_from_slice(&(-1i64).to_be_bytes());
        answer.extend_from_slice(&0i64.to_be_bytes());
        answer.extend_from_slice(&[1, 0, 0]);
    }
    answer.push(0);
    answer.extend_from_slice(&[0; 5]);
    let length = (answer.len() - 4) as i32;
    answer[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&answer)
}

fn append(store: &Store, partition: i32, batch: &mut [u8]) -> io::Result<i64> {
    let view = Header::at_start_of(batch).ok_or_else(|| io::Error::other("short batch"))?;
    if view.crc() != header::compute_crc(batch) {
        return Err(io::Error::other("wrong CRC"));
    }
    let records = i64::from(view.last_offset_delta()) + 1;
    let log = store.log(partition)?;
    let mut log = log.lock().expect("no thread panics while it holds the lock");
    let offset = log.next_offset;
    header::set_position(batch, offset, 0);
    let position = log.size;
    (&log.file).write_all(batch)?;
    if store.durable {
        log.file.sync_data()?;
    }
    log.batches.push((offset, position));
    log.size += batch.len() as u64;
    log.next_offset += records;
    Ok(offset)
}

fn fetch(stream: &mut TcpStream, store: &Store, body: &[u8], at: usize, correlation: [u8; 4]) -> io::Result<()> {
    let mut at = at + 4 + 4 + 4 + 4 + 1 + 4 + 4;
    get_uvarint(body, &mut at);
    let name_length = get_uvarint(body, &mut at) - 1;
    let name = &body[at..at + name_length];
    at += name_length;
    get_uvarint(body, &mut at);
    let partition = i32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
    let mut offset = [0; 8];
    offset.copy_from_slice(&body[at + 8..at + 16]);
    let offset = i64::from_be_bytes(offset);
    let mut max = [0; 4];
    max.copy_from_slice(&body[at + 28..at + 32]);
    let max = u32::from_be_bytes(max) as u64;
    let log = store.log(partition)?;
    let log = log.lock().expect("no thread panics while it holds the lock");
    let first = log.batches.partition_point(|batch| batch.0 <= offset).saturating_sub(1);
    let position = if offset >= log.next_offset { log.size } else { log.batches[first].1 };
    let length = (log.size - position).min(max);
    let mut answer = vec![0; 4];
    answer.extend_from_slice(&correlation);
    answer.push(0);
    answer.extend_from_slice(&[0; 4 + 2 + 4]);
    put_uvarint(&mut answer, 2);
    put_uvarint(&mut answer, name.len() + 1);
    answer.extend_from_slice(name);
    put_uvarint(&mut answer, 2);
    answer.extend_from_slice(&partition.to_be_bytes());
    answer.extend_from_slice(&0i16.to_be_bytes());
    answer.extend_from_slice(&log.next_offset.to_be_bytes());
    answer.extend_from_slice(&log.next_offset.to_be_bytes());
    answer.extend_from_slice(&0i64.to_be_bytes());
    answer.push(1);
    answer.extend_from_slice(&(-1i32).to_be_bytes());
    put_uvarint(&mut answer, length as usize + 1);
    let size = answer.len() + length as usize + 3 - 4;
    answer[..4].copy_from_slice(&(size as i32).to_be_bytes());
    stream.write_all(&answer)?;
    send_file(stream, &log.file, position, length as usize)?;
    stream.write_all(&[0, 0, 0])
}

#[cfg(target_os = "linux")]
fn send_file(stream: &TcpStream, file: &File, position: u64, length: usize) -> io::Result<()> {
    let (mut at, mut left) = (position as libc::off_t, length);
    while left > 0 {
        // SAFETY: both descriptors are open during the call, and `at` outlives it.
        let sent = unsafe { libc::sendfile(stream.as_raw_fd(), file.as_raw_fd(), &mut at, left) };
        if sent <= 0 {
            return Err(io::Error::last_os_error());
        }
        left -= sent as usize;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn send_file(mut stream: &TcpStream, file: &File, position: u64, length: usize) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, position)?;
    stream.write_all(&bytes)
}
