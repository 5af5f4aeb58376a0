//! One record per request at a fixed rate, independent of the responses.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use klamm_load::requests::check_produced;
use klamm_load::{batch, connect, produce_frame, read_frame, send};

use crate::now_ms;
use crate::options::Options;

pub fn latency(options: &Options) -> io::Result<String> {
    let rate = options.number("rate", 1000);
    let total = rate * options.number("seconds", 10);
    let payload = batch(1, options.number("record", 1024) as usize, now_ms());
    let frame = produce_frame(1, options.text("topic", "bench"), &[0], options.acks(), &payload);
    let mut writer = connect(options.address(0))?;
    let reader = writer.try_clone()?;
    let start = Instant::now() + Duration::from_millis(5);
    let due = move |index: u64| start + Duration::from_nanos(index * 1_000_000_000 / rate);
    let reading = std::thread::spawn(move || read_latencies(reader, total, due));
    for index in 0..total {
        while let Some(wait) = due(index).checked_duration_since(Instant::now()) {
            // A sleep overshoots by tens of microseconds, so the last part is a spin loop.
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
