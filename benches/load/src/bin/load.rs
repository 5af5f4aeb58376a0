//! Load for one topic of a broker on this machine: a line of JSON with what was measured.
//!
//! `klamm-load MODE key=value...`, MODE one of
//! - `produce`: `connections` connections keep `inflight` requests of one `batch` bytes each in the air until `bytes` are
//!   acknowledged;
//! - `fetch`: reads `bytes` from the start of partition 0;
//! - `latency`: one record a request at `rate` a second for `seconds`, open loop; acknowledgement times.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use klamm_load::{batch, connect, cpu_seconds, fetch_frame, get_uvarint, produce_frame, read_frame, send};

struct Options(HashMap<String, String>);

impl Options {
    fn number(&self, key: &str, default: u64) -> u64 {
        self.0.get(key).map_or(default, |text| text.parse().unwrap_or_else(|_| usage(&format!("{key}={text}"))))
    }

    fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.0.get(key).map_or(default, String::as_str)
    }

    fn acks(&self) -> i16 {
        self.text("acks", "-1").parse().unwrap_or_else(|_| usage("acks"))
    }
}

fn usage(wrong: &str) -> ! {
    eprintln!(
        "{wrong}: usage: klamm-load produce|fetch|latency address=HOST:PORT topic=T [partitions=1] [connections=1] \
         [inflight=5] [record=1024] [batch=1000000] [bytes=500000000] [acks=-1] [rate=1000] [seconds=10] [pid=PID]"
    );
    std::process::exit(2)
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_else(|| usage("no mode"));
    let pairs = arguments.map(|word| match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => usage(&word),
    });
    let options = Options(pairs.collect());
    let pid = options.number("pid", 0) as u32;
    let cpu_before = cpu_seconds(pid);
    let start = Instant::now();
    let fields = match mode.as_str() {
        "produce" => produce(&options)?,
        "fetch" => fetch(&options)?,
        "latency" => latency(&options)?,
        other => usage(other),
    };
    let seconds = start.elapsed().as_secs_f64();
    let cpu =
        cpu_before.zip(cpu_seconds(pid)).map_or("null".to_owned(), |(before, after)| format!("{:.3}", after - before));
    println!("{{\"mode\":\"{mode}\",\"seconds\":{seconds:.4},\"server_cpu_seconds\":{cpu},{fields}}}");
    Ok(())
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

fn records_in(batch_bytes: u64, record: u64) -> usize {
    ((batch_bytes - 61) / (record + 11)).max(1) as usize
}

fn produce(options: &Options) -> io::Result<String> {
    let (record, wanted) = (options.number("record", 1024), options.number("bytes", 500_000_000));
    let count = records_in(options.number("batch", 1_000_000), record);
    let payload = batch(count, record as usize, now_ms());
    let partitions = options.number("partitions", 1) as i32;
    let connections = options.number("connections", 1);
    let spread = options.number("spread", 1) as usize;
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| -> io::Result<()> {
        let workers: Vec<_> = (0..connections)
            .map(|worker| {
                let (payload, acknowledged) = (&payload, &acknowledged);
                scope.spawn(move || {
                    let own: Vec<i32> = (0..partitions)
                        .filter(|p| partitions < connections as i32 || *p as u64 % connections == worker)
                        .collect();
                    let own = if own.is_empty() { vec![worker as i32 % partitions] } else { own };
                    produce_on(options, &own, spread, payload, wanted, acknowledged)
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| io::Error::other("a connection's thread died"))??;
        }
        Ok(())
    })?;
    let requests = acknowledged.load(Ordering::Relaxed) / payload.len() as u64;
    Ok(format!(
        "\"bytes\":{},\"records\":{},\"batch_bytes\":{}",
        requests * payload.len() as u64,
        requests * count as u64,
        payload.len()
    ))
}

fn produce_on(
    options: &Options,
    own: &[i32],
    spread: usize,
    payload: &[u8],
    wanted: u64,
    acknowledged: &AtomicU64,
) -> io::Result<()> {
    let mut writer = connect(options.text("address", "127.0.0.1:9092"))?;
    let mut reader = writer.try_clone()?;
    let spread = spread.min(own.len());
    let (free, slots) = sync_channel::<()>(options.number("inflight", 5) as usize);
    let frames: Vec<Vec<u8>> = own
        .chunks(spread)
        .map(|part| produce_frame(1, options.text("topic", "bench"), part, options.acks(), payload))
        .collect();
    let sent = AtomicU64::new(0);
    let per_frame = (payload.len() * spread) as u64;
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| -> io::Result<u64> {
            let mut requests = 0;
            while sent.load(Ordering::Relaxed) + acknowledged.load(Ordering::Relaxed) < wanted + per_frame {
                if free.send(()).is_err() {
                    break;
                }
                sent.fetch_add(per_frame, Ordering::Relaxed);
                send(&mut writer, &frames[requests as usize % frames.len()])?;
                requests += 1;
            }
            drop(free);
            Ok(requests)
        });
        let mut buffer = Vec::new();
        while slots.recv().is_ok() {
            let length =
                read_frame(&mut reader, &mut buffer)?.ok_or_else(|| io::Error::other("closed by the broker"))?;
            check_produced(&buffer[..length])?;
            acknowledged.fetch_add(per_frame, Ordering::Relaxed);
            sent.fetch_sub(per_frame, Ordering::Relaxed);
        }
        writing.join().map_err(|_| io::Error::other("the writing thread died"))??;
        Ok(())
    })
}

/// The first partition's error code, which must be 0.
fn check_produced(body: &[u8]) -> io::Result<()> {
    let mut at = 5;
    get_uvarint(body, &mut at);
    let name = get_uvarint(body, &mut at) - 1;
    at += name;
    get_uvarint(body, &mut at);
    let code = i16::from_be_bytes([body[at + 4], body[at + 5]]);
    if code == 0 { Ok(()) } else { Err(io::Error::other(format!("produce failed with error code {code}"))) }
}

fn fetch(options: &Options) -> io::Result<String> {
    let wanted = options.number("bytes", 500_000_000);
    let mut stream = connect(options.text("address", "127.0.0.1:9092"))?;
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
    Ok(format!("\"bytes\":{bytes},\"records\":{records}"))
}

/// The offset after the last whole batch of a Fetch v12 answer for one partition, and the size of its records.
fn last_offset(body: &[u8]) -> io::Result<(i64, usize)> {
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

fn latency(options: &Options) -> io::Result<String> {
    let rate = options.number("rate", 1000);
    let total = rate * options.number("seconds", 10);
    let payload = batch(1, options.number("record", 1024) as usize, now_ms());
    let frame = produce_frame(1, options.text("topic", "bench"), &[0], options.acks(), &payload);
    let mut writer = connect(options.text("address", "127.0.0.1:9092"))?;
    let reader = writer.try_clone()?;
    let start = Instant::now() + Duration::from_millis(5);
    let due = move |index: u64| start + Duration::from_nanos(index * 1_000_000_000 / rate);
    let reading = std::thread::spawn(move || read_latencies(reader, total, due));
    for index in 0..total {
        while let Some(wait) = due(index).checked_duration_since(Instant::now()) {
            // A sleep overshoots by tens of microseconds; the last stretch is spun.
            if wait > Duration::from_micros(200) {
                std::thread::sleep(wait - Duration::from_micros(150));
            } else {
                std::hint::spin_loop();
            }
        }
        send(&mut writer, &frame)?;
    }
    let mut micros = reading.join().map_err(|_| io::Error::other("the reading thread died"))??;
    micros.sort_unstable();
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
    Ok(format!(
        "\"requests\":{total},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{},\"max_us\":{}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    ))
}

fn read_latencies(mut reader: TcpStream, total: u64, due: impl Fn(u64) -> Instant) -> io::Result<Vec<u64>> {
    let (mut micros, mut buffer) = (Vec::with_capacity(total as usize), Vec::new());
    for index in 0..total {
        let length = read_frame(&mut reader, &mut buffer)?.ok_or_else(|| io::Error::other("closed by the broker"))?;
        check_produced(&buffer[..length])?;
        micros.push(Instant::now().saturating_duration_since(due(index)).as_micros() as u64);
    }
    Ok(micros)
}
