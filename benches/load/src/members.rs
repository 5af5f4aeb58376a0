//! ConsumerGroupHeartbeat v1 (KIP-848): requests of a member, and the parts of a response.

use std::collections::BTreeSet;

use crate::{finish, get_uvarint, header, put_name, put_uvarint};

const CONSUMER_GROUP_HEARTBEAT: i16 = 68;
const REBALANCE_TIMEOUT_MS: i32 = 300_000;
/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
pub const NOT_READY: [i16; 3] = [14, 15, 16];
/// UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
pub const FORGOTTEN: [i16; 2] = [25, 110];

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
    /// Whether the next heartbeat has all fields, so that the response has the assignment.
    is_full: bool,
}

impl Member {
    /// A member that has not joined.
    pub fn new(id: String) -> Self {
        Self { id, epoch: 0, owned: BTreeSet::new(), has_news: true, is_full: true }
    }

    /// The next heartbeat, like that of Apache Kafka's consumer: fields that have not changed since the last response
    /// are null.
    pub fn heartbeat_frame(&self, group: &str, topic: &str) -> Vec<u8> {
        let mut out = self.begin(group, self.epoch);
        out.extend_from_slice(&(if self.is_full { REBALANCE_TIMEOUT_MS } else { -1 }).to_be_bytes());
        put_uvarint(&mut out, if self.is_full { 2 } else { 0 });
        if self.is_full {
            put_name(&mut out, topic);
        }
        out.extend_from_slice(&[0, 0]);
        if self.is_full || self.has_news {
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
    ///
    /// The coordinator may have processed a heartbeat that it answers with an error, so the next one is full. A member
    /// that was removed or fenced joins again, and owns nothing.
    pub fn take(&mut self, frame: &[u8]) -> i16 {
        let mut at = 4 + 1 + 4;
        let error = i16::from_be_bytes([frame[at], frame[at + 1]]);
        self.is_full = error != 0;
        if FORGOTTEN.contains(&error) {
            self.epoch = 0;
            self.owned.clear();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: [u8; 16] = [7; 16];

    fn response(error: i16, epoch: i32, assigned: Option<&[i32]>) -> Vec<u8> {
        let mut out = vec![0; 9];
        out.extend_from_slice(&error.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&epoch.to_be_bytes());
        out.extend_from_slice(&5_000i32.to_be_bytes());
        match assigned {
            None => out.push(0xff),
            Some(partitions) => {
                out.push(1);
                put_partitions(&mut out, &partitions.iter().map(|index| (TOPIC, *index)).collect());
            }
        }
        out
    }

    /// The rebalance timeout, and the rest up to the tags of the request.
    fn fields(member: &Member) -> (i32, Vec<u8>) {
        let frame = member.heartbeat_frame("g", "t");
        let mut at = member.begin("g", member.epoch).len();
        let timeout = int(&frame, &mut at);
        (timeout, frame[at..frame.len() - 1].to_vec())
    }

    fn full(owned: &[i32]) -> (i32, Vec<u8>) {
        let mut rest = vec![2, 2, b't', 0, 0];
        put_partitions(&mut rest, &owned.iter().map(|index| (TOPIC, *index)).collect());
        (REBALANCE_TIMEOUT_MS, rest)
    }

    fn joined() -> Member {
        let mut member = Member::new("m".to_owned());
        assert_eq!(fields(&member), full(&[]));
        assert_eq!(member.take(&response(0, 5, Some(&[1]))), 0);
        assert_eq!(member.take(&response(0, 5, None)), 0);
        assert_eq!(fields(&member), (-1, vec![0, 0, 0, 0]), "nothing changed");
        member
    }

    #[test]
    fn a_heartbeat_after_an_error_is_full() {
        for error in NOT_READY {
            let mut member = joined();
            assert_eq!(member.take(&response(error, 0, None)), error);
            assert_eq!((member.epoch, fields(&member)), (5, full(&[1])));
            // The coordinator had processed the heartbeat, and repeats what it assigned.
            assert_eq!(member.take(&response(0, 6, Some(&[1, 2]))), 0);
            assert!(member.has_news);
            assert_eq!(fields(&member).0, -1);
        }
    }

    #[test]
    fn a_member_that_was_removed_joins_again_without_partitions() {
        for error in FORGOTTEN {
            let mut member = joined();
            assert_eq!(member.take(&response(error, 0, None)), error);
            assert_eq!((member.epoch, fields(&member)), (0, full(&[])));
        }
    }
}
