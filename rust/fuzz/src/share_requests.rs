//! Invariant: no requests of share consumers, answers of the share coordinator and changes of logs make their handlers panic or
//! break the invariants of a share partition. Every request is answered completely, or closes its connection.

use klamm_base::ErrorCode;
use klamm_net::testing::{Acks, NAMED, OTHER, ShareFetchSpec, ShareRequests, frame, share_acknowledge, share_fetch};
use klamm_wire::api::{SHARE_ACKNOWLEDGE, SHARE_FETCH};

use crate::input::Input;

const CONNECTIONS: usize = 3;
const MEMBERS: [&str; 4] = ["m", "n", "", "a member id that is longer than it may be"];
/// The epochs of a session that mean something, and of those that follow.
const EPOCHS: [i32; 6] = [0, -1, 1, 2, -2, i32::MAX];
const NUMBERS: [i32; 6] = [0, 1, 100, 1 << 20, -1, i32::MAX];
const OFFSETS: [i64; 6] = [0, 5, 60, -1, i64::MAX, i64::MIN];
const FRAME_LENGTH_LEN: usize = 4;

/// Reads the bytes as steps.
pub fn share_requests(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World { requests: ShareRequests::of(CONNECTIONS), next_epoch: [1; CONNECTIONS] };
    while !input.is_empty() {
        world.step(&mut input);
        world.requests.check_invariants();
    }
    world.requests.answer(true);
    assert_eq!(world.requests.waiting_count(), 0, "a request has no response");
}

struct World {
    requests: ShareRequests,
    /// Of the session of each connection, if it has one.
    next_epoch: [i32; CONNECTIONS],
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0..=3 => self.fetch(input),
            4 | 5 => self.acknowledge(input),
            6 => {
                let length = input.below(256);
                self.take(input.below(CONNECTIONS), input.bytes(length).to_vec());
            }
            7 => self.answer_call(input),
            8 => self.requests.append(input.below(2) as i32, 1 + input.below(20) as i32),
            9 => self.requests.pass(i64::from(input.byte()) * 200),
            10 => match input.below(8) {
                0 => self.requests.begin_log_at(input.below(2) as i32, i64::from(input.byte())),
                1 => self.requests.disconnect(input.below(CONNECTIONS)),
                _ => self.requests.answer(true),
            },
            _ => self.requests.answer(false),
        }
    }

    fn fetch(&mut self, input: &mut Input<'_>) {
        let connection = input.below(CONNECTIONS);
        let acks = acknowledgements(input);
        let borrowed: Vec<(i64, i64, &[u8])> =
            acks.iter().map(|(first, last, types)| (*first, *last, &**types)).collect();
        let acks: Acks<'_> = if input.byte() & 1 == 0 { &borrowed } else { &[] };
        let partitions = [(0, acks), (1, &[][..]), (7, &[][..])];
        let (is_known, choices) = (!input.byte().is_multiple_of(4), input.byte());
        let spec = ShareFetchSpec {
            member: member(connection, input),
            epoch: self.epoch(connection, is_known, input),
            max_wait_ms: number(choices, 1),
            min_bytes: NUMBERS[input.below(NUMBERS.len())],
            max_bytes: NUMBERS[input.below(NUMBERS.len())],
            max_records: NUMBERS[input.below(NUMBERS.len())],
            acquire_mode: input.below(3) as i8,
            is_renew: choices & 4 != 0,
            topic: if choices & 8 == 0 { NAMED } else { OTHER },
            partitions: &partitions[..input.below(4)],
            forgotten: if choices & 16 == 0 { &[] } else { &[0, 1, 9] },
        };
        self.take(connection, framed(SHARE_FETCH, 2, &share_fetch(&spec)));
    }

    fn acknowledge(&mut self, input: &mut Input<'_>) {
        let connection = input.below(CONNECTIONS);
        let acks = acknowledgements(input);
        let acks: Vec<(i64, i64, &[u8])> = acks.iter().map(|(first, last, types)| (*first, *last, &**types)).collect();
        let epoch = self.epoch(connection, true, input);
        let partitions = [(0, &acks[..]), (1, &acks[..]), (0, &acks[..])];
        let body = share_acknowledge(epoch, input.byte() & 1 == 1, &partitions[..1 + input.below(3)]);
        self.take(connection, framed(SHARE_ACKNOWLEDGE, 2, &body));
    }

    /// The epoch that the session expects, or any.
    fn epoch(&mut self, connection: usize, is_known: bool, input: &mut Input<'_>) -> i32 {
        let epoch = match input.below(3) {
            0 if is_known => EPOCHS[input.below(EPOCHS.len())],
            _ => self.next_epoch[connection],
        };
        self.next_epoch[connection] = epoch.checked_add(1).unwrap_or(1);
        epoch
    }

    fn take(&mut self, connection: usize, mut bytes: Vec<u8>) {
        if self.requests.take(connection, &mut bytes).is_err() {
            self.requests.disconnect(connection);
        }
    }

    fn answer_call(&mut self, input: &mut Input<'_>) {
        if self.requests.next_call().is_none() {
            return;
        }
        match input.below(6) {
            0 => self.requests.fail_call(ErrorCode(i16::from(input.byte())), &[]),
            1 => {
                let length = input.below(64);
                self.requests.fail_call(ErrorCode::NONE, input.bytes(length));
            }
            2 => {
                let batches: Vec<(i64, i64, i8, i16)> = (0..input.below(4)).map(|_| state_batch(input)).collect();
                self.requests.answer_call(OFFSETS[input.below(OFFSETS.len())], &batches);
            }
            _ => self.requests.answer_call(-1, &[]),
        }
    }
}

fn framed(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    frame(key, version, 7, body).split_off(FRAME_LENGTH_LEN)
}

fn member(connection: usize, input: &mut Input<'_>) -> &'static str {
    // Mostly one member a connection: another one would have no session.
    if input.below(8) == 0 { MEMBERS[input.below(MEMBERS.len())] } else { MEMBERS[connection % 2] }
}

fn number(choices: u8, bit: u8) -> i32 {
    i32::from(choices & bit) * 60_000
}

/// First and last offset near the beginning, or far from everything, with any number of types.
fn acknowledgements(input: &mut Input<'_>) -> Vec<(i64, i64, Vec<u8>)> {
    let mut acknowledgement = || {
        let first = match input.below(8) {
            0 => OFFSETS[input.below(OFFSETS.len())],
            _ => input.below(40) as i64,
        };
        let span = input.below(20) as i64;
        let last = if input.below(16) == 0 { OFFSETS[input.below(OFFSETS.len())] } else { first.saturating_add(span) };
        let count = [1, 1, span as usize + 1, input.below(4)][input.below(4)];
        (first, last, (0..count).map(|_| input.below(6) as u8).collect())
    };
    let first = acknowledgement();
    if first.0 & 1 == 0 { vec![first] } else { vec![first, acknowledgement()] }
}

fn state_batch(input: &mut Input<'_>) -> (i64, i64, i8, i16) {
    let first = input.below(40) as i64;
    (first, first + i64::from(input.signed() % 20), input.below(6) as i8, i16::from(input.signed()))
}
