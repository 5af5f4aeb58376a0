//! Uses every partition: writes one record, twice, and reads both back.

use std::io;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use klamm_load::requests::check_produced;
use klamm_load::{batch, connect, fetch_frame, produce_frame, read_frame, send};

use crate::fetch::last_offset;
use crate::now_ms;
use crate::options::Options;

const AT_ONCE: usize = 100;
const ROUNDS: i64 = 2;
const TIMEOUT: Duration = Duration::from_secs(60);

fn exchange(stream: &mut TcpStream, frame: &[u8], buffer: &mut Vec<u8>) -> io::Result<()> {
    send(stream, frame)?;
    let length = read_frame(stream, buffer)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    check_produced(&buffer[..length])
}

pub fn touch(options: &Options) -> io::Result<String> {
    let mut stream = connect(options.address(0))?;
    let (topic, payload, mut buffer) = (options.text("topic", "bench"), batch(1, 100, now_ms()), Vec::new());
    let partitions: Vec<i32> = (0..options.number("partitions", 1) as i32).collect();
    let ended = || io::Error::other("closed by the broker");
    for _ in 0..ROUNDS {
        for part in partitions.chunks(AT_ONCE) {
            let frame = produce_frame(1, topic, part, options.acks(), &payload);
            let deadline = Instant::now() + TIMEOUT;
            // A broker may return metadata of a topic before it leads all of its partitions.
            while let Err(error) = exchange(&mut stream, &frame, &mut buffer) {
                if error.kind() != io::ErrorKind::Other || Instant::now() > deadline {
                    return Err(error);
                }
                sleep(Duration::from_millis(50));
            }
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
