//! Every partition used: one record written, twice, and both read back.

use std::io;

use klamm_load::requests::check_produced;
use klamm_load::{batch, connect, fetch_frame, produce_frame, read_frame, send};

use crate::fetch::last_offset;
use crate::now_ms;
use crate::options::Options;

const AT_ONCE: usize = 100;
const ROUNDS: i64 = 2;

pub fn touch(options: &Options) -> io::Result<String> {
    let mut stream = connect(options.text("address", "127.0.0.1:9092"))?;
    let (topic, payload, mut buffer) = (options.text("topic", "bench"), batch(1, 100, now_ms()), Vec::new());
    let partitions: Vec<i32> = (0..options.number("partitions", 1) as i32).collect();
    let ended = || io::Error::other("closed by the broker");
    for _ in 0..ROUNDS {
        for part in partitions.chunks(AT_ONCE) {
            send(&mut stream, &produce_frame(1, topic, part, options.acks(), &payload))?;
            let length = read_frame(&mut stream, &mut buffer)?.ok_or_else(ended)?;
            check_produced(&buffer[..length])?;
        }
    }
    for &partition in &partitions {
        send(&mut stream, &fetch_frame(1, topic, partition, 0, 1 << 20))?;
        let length = read_frame(&mut stream, &mut buffer)?.ok_or_else(ended)?;
        let (next, _) = last_offset(&buffer[..length])?;
        if next < ROUNDS {
            return Err(io::Error::other(format!("partition {partition} gave {next} of {ROUNDS} records")));
        }
    }
    Ok(format!("\"partitions\":{}", partitions.len()))
}
