//! ConsumerGroupHeartbeat v1 (KIP-848): what a member sends, and what the response says.

use std::collections::BTreeSet;

use crate::{finish, get_uvarint, header, put_name, put_uvarint};

const CONSUMER_GROUP_HEARTBEAT: i16 = 68;
const REBALANCE_TIMEOUT_MS: i32 = 300_000;
/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
pub const NOT_READY: [i16; 3] = [14, 15, 16];

/// Topic id and index.
pub type Partition = ([u8; 16], i32);

/// A member of a group that reads one topic.
#[derive(Debug, Clone)]
pub struct Member {
    pub id: String,
    pub epoch: i32,
    pub owned: BTreeSet<Partition>,
    /// Whether the next heartbeat reports what it owns.
    pub has_news: bool,
}

impl Member {
    /// One that has not joined.
    pub fn new(id: String) -> Self {
        Self { id, epoch: 0, owned: BTreeSet::new(), has_news: true }
    }

    /// The next heartbeat, as Apache Kafka's consumer sends it: what did not change is left out.
    pub fn heartbeat_frame(&self, group: &str, topic: &str) -> Vec<u8> {
        let joins = self.epoch == 0;
        let mut out = self.begin(group, self.epoch);
        out.extend_from_slice(&(if joins { REBALANCE_TIMEOUT_MS } else { -1 }).to_be_bytes());
        put_uvarint(&mut out, if joins { 2 } else { 0 });
        if joins {
            put_name(&mut out, topic);
        }
        out.extend_from_slice(&[0, 0]);
        if self.has_news {
            put_partitions(&mut out, &self.owned);
        } else {
            out.push(0);
        }
        out.push(0);
        finish(out)
    }

    /// The heartbeat with which it leaves.
    pub fn leave_frame(&self, group: &str) -> Vec<u8> {
        let mut out = self.begin(group, -1);
        out.extend_from_slice(&(-1i32).to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, 0]);
        finish(out)
    }

    fn begin(&self, group: &str, epoch: i32) -> Vec<u8> {
        let mut out = header(CONSUMER_GROUP_HEARTBEAT, 1, 1);
        put_name(&mut out, group);
        put_name(&mut out, &self.id);
        out.extend_from_slice(&epoch.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out
    }

    /// Takes a response's frame; returns its error code. With a new assignment the member has news.
    pub fn take(&mut self, frame: &[u8]) -> i16 {
        let mut at = 4 + 1 + 4;
        let error = i16::from_be_bytes([frame[at], frame[at + 1]]);
        if error != 0 {
            return error;
        }
        at += 2;
        for _ in 0..2 {
            at += get_uvarint(frame, &mut at).saturating_sub(1);
        }
        self.epoch = int(frame, &mut at);
        int(frame, &mut at);
        self.has_news = false;
        let has_assignment = frame[at] as i8 >= 0;
        if has_assignment {
            at += 1;
            let owned = get_partitions(frame, &mut at);
            self.has_news = owned != self.owned;
            self.owned = owned;
        }
        0
    }
}

fn int(frame: &[u8], at: &mut usize) -> i32 {
    *at += 4;
    i32::from_be_bytes(frame[*at - 4..*at].try_into().expect("four bytes"))
}

fn put_partitions(out: &mut Vec<u8>, partitions: &BTreeSet<Partition>) {
    let partitions: Vec<Partition> = partitions.iter().copied().collect();
    let topics: Vec<&[Partition]> = partitions.chunk_by(|left, right| left.0 == right.0).collect();
    put_uvarint(out, topics.len() + 1);
    for of_topic in topics {
        out.extend_from_slice(&of_topic[0].0);
        put_uvarint(out, of_topic.len() + 1);
        of_topic.iter().for_each(|(_, index)| out.extend_from_slice(&index.to_be_bytes()));
        out.push(0);
    }
}

fn get_partitions(frame: &[u8], at: &mut usize) -> BTreeSet<Partition> {
    let mut found = BTreeSet::new();
    for _ in 1..get_uvarint(frame, at).max(1) {
        let topic: [u8; 16] = frame[*at..*at + 16].try_into().expect("an id");
        *at += 16;
        for _ in 1..get_uvarint(frame, at).max(1) {
            found.insert((topic, int(frame, at)));
        }
        *at += 1;
    }
    found
}
