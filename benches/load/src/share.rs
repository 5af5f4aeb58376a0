//! ShareGroupHeartbeat v1 and ShareFetch v1 (KIP-932): requests of a member, and the parts of a response.

use std::collections::BTreeMap;
use std::io;

use crate::members::{Member, Partition};
use crate::{finish, get_uvarint, header, put_name, put_uvarint};

const SHARE_GROUP_HEARTBEAT: i16 = 76;
const SHARE_FETCH: i16 = 78;
const ACCEPT: u8 = 1;
const MAX_BYTES: i32 = 50 << 20;

/// First and last offset, both inclusive.
pub type Offsets = (i64, i64);
/// What the next fetch accepts.
pub type Accepted = BTreeMap<Partition, Vec<Offsets>>;

/// A heartbeat of a member that reads one topic. Its response is [`Member::take`]'s.
pub fn share_heartbeat_frame(member: &Member, group: &str, topic: &str) -> Vec<u8> {
    let mut out = header(SHARE_GROUP_HEARTBEAT, 1, 1);
    put_name(&mut out, group);
    put_name(&mut out, &member.id);
    out.extend_from_slice(&member.epoch.to_be_bytes());
    out.push(0);
    put_uvarint(&mut out, 2);
    put_name(&mut out, topic);
    out.push(0);
    finish(out)
}

/// The next fetch of a session. `new`: partitions that are not in it.
pub struct ShareFetch<'a> {
    pub group: &'a str,
    pub member: &'a str,
    pub epoch: i32,
    pub records_max: i32,
    pub max_wait_ms: i32,
    pub new: &'a [Partition],
    pub accepted: &'a Accepted,
}

impl ShareFetch<'_> {
    pub fn frame(&self) -> Vec<u8> {
        let mut out = header(SHARE_FETCH, 1, 1);
        put_name(&mut out, self.group);
        put_name(&mut out, self.member);
        let numbers = [self.epoch, self.max_wait_ms, 1, MAX_BYTES, self.records_max, self.records_max];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
        let mut partitions: Accepted = self.new.iter().map(|partition| (*partition, Vec::new())).collect();
        partitions.extend(self.accepted.iter().map(|(partition, offsets)| (*partition, offsets.clone())));
        let partitions: Vec<_> = partitions.into_iter().collect();
        let topics: Vec<_> = partitions.chunk_by(|(left, _), (right, _)| left.0 == right.0).collect();
        put_uvarint(&mut out, topics.len() + 1);
        for of_topic in topics {
            out.extend_from_slice(&of_topic[0].0.0);
            put_uvarint(&mut out, of_topic.len() + 1);
            for ((_, index), offsets) in of_topic {
                out.extend_from_slice(&index.to_be_bytes());
                put_uvarint(&mut out, offsets.len() + 1);
                for (first, last) in offsets {
                    out.extend_from_slice(&first.to_be_bytes());
                    out.extend_from_slice(&last.to_be_bytes());
                    out.extend_from_slice(&[2, ACCEPT, 0]);
                }
                out.push(0);
            }
            out.push(0);
        }
        // Nothing is forgotten, and no tagged fields.
        out.extend_from_slice(&[1, 0]);
        finish(out)
    }
}

/// A partition of a response.
pub struct Fetched {
    pub partition: Partition,
    pub acquired: Vec<Offsets>,
}

/// The partitions of a response; an error if any partition has one.
pub fn fetched(frame: &[u8]) -> io::Result<Vec<Fetched>> {
    let mut reader = Reader { frame, at: 4 + 1 + 4 };
    reader.no_error("share fetch")?;
    reader.int();
    let mut found = Vec::new();
    for _ in 1..reader.length() {
        let topic: [u8; 16] = reader.take(16).try_into().expect("an id");
        for _ in 1..reader.length() {
            let index = reader.int();
            reader.no_error("a partition")?;
            reader.no_error("an acknowledgement")?;
            // The leader, its epoch and the tagged fields.
            reader.take(4 + 4 + 1);
            let records = reader.length() - 1;
            reader.take(records);
            let mut acquired = Vec::new();
            for _ in 1..reader.length() {
                acquired.push((reader.long(), reader.long()));
                reader.take(2 + 1);
            }
            reader.take(1);
            found.push(Fetched { partition: (topic, index), acquired });
        }
        reader.take(1);
    }
    Ok(found)
}

struct Reader<'a> {
    frame: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        self.at += count;
        &self.frame[self.at - count..self.at]
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    /// Lengths and counts are encoded plus one; null becomes 0 like an empty one.
    fn length(&mut self) -> usize {
        get_uvarint(self.frame, &mut self.at).max(1)
    }

    /// An error code and its message.
    fn no_error(&mut self, what: &str) -> io::Result<()> {
        let code = i16::from_be_bytes(self.take(2).try_into().expect("two bytes"));
        let message = self.length() - 1;
        let message = String::from_utf8_lossy(self.take(message));
        if code == 0 { Ok(()) } else { Err(io::Error::other(format!("{what} has error code {code}: {message}"))) }
    }
}
