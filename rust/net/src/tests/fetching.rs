//! Fetch: limits, waiting, sessions.

use std::io::Read;

use klamm_base::ErrorCode;
use klamm_base::Uuid;
use klamm_wire::api::{FETCH, PRODUCE};

use crate::NetConfig;
use crate::testing::{Client, FetchAnswer, FetchSpec, Fixture, INTERNAL, NAMED, OTHER, batch, fetch, fetched, produce};

const LIMIT: i32 = 1 << 20;

fn fetch_now(client: &mut Client, spec: FetchSpec<'_>) -> FetchAnswer {
    fetched(&client.call(FETCH, 13, &fetch(&spec)))
}

fn append(client: &mut Client, index: i32, batch: &[u8]) {
    client.call(PRODUCE, 9, &produce(1, 1000, &[(index, batch)]));
}

/// Lengths of the records by partition.
fn lengths(answer: &FetchAnswer) -> Vec<(i32, usize)> {
    answer.partitions.iter().map(|(index, _, _, records)| (*index, records.len())).collect()
}

#[test]
fn a_repeated_partition_is_read_once_at_its_last_position() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for _ in 0..3 {
        append(&mut client, 0, &batch(1, 10));
    }
    let partitions = &[(0, 0, LIMIT), (1, 0, LIMIT), (0, 2, LIMIT)];
    let answer = fetch_now(&mut client, FetchSpec { partitions, ..FetchSpec::default() });
    assert_eq!(lengths(&answer), [(0, 71), (1, 0)]);
}

#[test]
fn records_are_returned_as_they_were_written() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    // Small ones are copied into the response, large ones are not.
    for padding in [10, 100_000, 3 << 20] {
        append(&mut client, 0, &batch(1, padding));
    }
    for (offset, padding) in [(0, 10), (1, 100_000), (2, 3 << 20)] {
        let answer = fetch_now(&mut client, FetchSpec { partitions: &[(0, offset, 1)], ..FetchSpec::default() });
        let (_, error, high_watermark, records) = &answer.partitions[0];
        assert_eq!((*error, *high_watermark, records.len()), (ErrorCode::NONE, 3, padding + 61));
        assert_eq!(records[..8], offset.to_be_bytes());
    }
}

#[test]
fn the_first_partition_returns_at_least_one_batch_and_the_others_obey_the_limit() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for index in [0, 1] {
        append(&mut client, index, &batch(1, 39));
        append(&mut client, index, &batch(1, 39));
    }
    let both = [(0, 0, LIMIT), (1, 0, LIMIT)];
    for (max_bytes, expected) in
        [(0, [(0, 100), (1, 0)]), (150, [(0, 100), (1, 0)]), (300, [(0, 200), (1, 100)]), (400, [(0, 200), (1, 200)])]
    {
        let answer = fetch_now(&mut client, FetchSpec { max_bytes, partitions: &both, ..FetchSpec::default() });
        assert_eq!(lengths(&answer), expected, "{max_bytes}");
    }
    let answer = fetch_now(&mut client, FetchSpec { partitions: &[(0, 9, 0), (1, 0, 99)], ..FetchSpec::default() });
    assert_eq!(lengths(&answer), [(0, 0), (1, 100)]);
}

#[test]
fn the_nodes_own_limit_applies_too() {
    let fixture = Fixture::with(NetConfig { fetch_bytes_max: 150, ..NetConfig::default() });
    let mut client = fixture.client();
    append(&mut client, 0, &batch(1, 39));
    append(&mut client, 0, &batch(1, 39));
    let answer = fetch_now(&mut client, FetchSpec { partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() });
    assert_eq!(lengths(&answer), [(0, 100)]);
}

#[test]
fn a_fetch_waits_for_data_and_is_woken() {
    let fixture = Fixture::new();
    let (mut reader, mut writer) = (fixture.client(), fixture.client());
    let spec = FetchSpec { max_wait_ms: 60_000, partitions: &[(0, 0, LIMIT), (1, 0, LIMIT)], ..FetchSpec::default() };
    reader.send(FETCH, 13, 1, &fetch(&spec));
    fixture.wait_until(|| fixture.backend.at(NAMED, 1).watcher_count() == 1);
    append(&mut writer, 1, &batch(1, 39));
    assert_eq!(lengths(&fetched(&reader.receive().1)), [(0, 0), (1, 100)]);
    assert_eq!(fixture.backend.at(NAMED, 0).watcher_count(), 0);
}

#[test]
fn a_fetch_waits_for_its_min_bytes() {
    let fixture = Fixture::new();
    let (mut reader, mut writer) = (fixture.client(), fixture.client());
    let spec = FetchSpec { max_wait_ms: 60_000, min_bytes: 250, partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() };
    reader.send(FETCH, 13, 1, &fetch(&spec));
    let partition = fixture.backend.at(NAMED, 0);
    for _ in 0..3 {
        fixture.wait_until(|| partition.watcher_count() == 1);
        append(&mut writer, 0, &batch(1, 39));
    }
    assert_eq!(lengths(&fetched(&reader.receive().1)), [(0, 300)]);
}

#[test]
fn a_fetch_is_answered_after_its_max_wait() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    append(&mut client, 0, &batch(1, 39));
    let spec = FetchSpec { max_wait_ms: 30, min_bytes: 1000, partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() };
    assert_eq!(lengths(&fetch_now(&mut client, spec)), [(0, 100)]);
}

#[test]
fn a_fetch_does_not_wait_for_a_topic_that_is_deleted() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let mut body = fetch(&FetchSpec { max_wait_ms: 60_000, partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() });
    // Another topic remains: `__consumer_offsets`.
    let topic = body[26..].iter().position(|&byte| byte == NAMED.0[0]).expect("the topic") + 26;
    let mut second = body[topic..body.len() - 3].to_vec();
    second[..16].copy_from_slice(&INTERNAL.0);
    body[topic - 1] = 3;
    body.splice(topic..topic, second);
    client.send(FETCH, 13, 1, &body);
    fixture.wait_until(|| fixture.backend.at(NAMED, 0).watcher_count() == 1);
    fixture.wait_until(|| fixture.backend.at(INTERNAL, 0).watcher_count() == 1);
    fixture.backend.remove_topics(&[NAMED]);
    let answer = fetched(&client.receive().1);
    let errors: Vec<_> = answer.partitions.iter().map(|(_, error, ..)| *error).collect();
    assert_eq!(errors, [ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_ID]);
}

#[test]
fn errors_do_not_wait() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let nowhere = FetchSpec { max_wait_ms: 60_000, topic: OTHER, partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() };
    assert_eq!(fetch_now(&mut client, nowhere).partitions[0].1, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let unknown = FetchSpec { topic: Uuid([9; 16]), ..nowhere };
    assert_eq!(fetch_now(&mut client, unknown).partitions[0].1, ErrorCode::UNKNOWN_TOPIC_ID);
    let no_partition = FetchSpec { topic: NAMED, partitions: &[(2, 0, LIMIT)], ..nowhere };
    assert_eq!(fetch_now(&mut client, no_partition).partitions[0].1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn a_session_returns_changes_and_takes_turns() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    append(&mut client, 0, &batch(1, 39));
    append(&mut client, 1, &batch(1, 39));
    let first = FetchSpec { session: (0, 0), partitions: &[(0, 0, LIMIT), (1, 0, LIMIT)], ..FetchSpec::default() };
    let opened = fetch_now(&mut client, first);
    assert_eq!(lengths(&opened), [(0, 100), (1, 100)]);
    let id = opened.session_id;
    assert!(id > 0);
    let next = FetchSpec { session: (id, 1), partitions: &[(0, 1, LIMIT)], ..FetchSpec::default() };
    assert_eq!(lengths(&fetch_now(&mut client, next)), [(1, 100)]);
    // Partition 1 returned data last, so 0 comes first; it has not changed.
    append(&mut client, 0, &batch(1, 39));
    let next = FetchSpec { session: (id, 2), ..FetchSpec::default() };
    assert_eq!(lengths(&fetch_now(&mut client, next)), [(0, 100), (1, 100)]);
    let next = FetchSpec { session: (id, 3), forgotten: &[1], partitions: &[(0, 2, LIMIT)], ..FetchSpec::default() };
    let answer = fetch_now(&mut client, next);
    assert_eq!((answer.session_id, lengths(&answer)), (id, vec![]));
    // The last partition is removed, which ends the session.
    let next = FetchSpec { session: (id, 4), forgotten: &[0], ..FetchSpec::default() };
    assert_eq!(fetch_now(&mut client, next).session_id, 0);
    let next = FetchSpec { session: (id, 5), ..FetchSpec::default() };
    assert_eq!(fetch_now(&mut client, next).error, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn a_session_reads_only_what_changed() {
    let fixture = Fixture::new();
    let (mut client, mut writer) = (fixture.client(), fixture.client());
    let reads = || [0, 1].map(|index| fixture.backend.at(NAMED, index).state.lock().fetches);
    let first = FetchSpec { session: (0, 0), partitions: &[(0, 0, LIMIT), (1, 0, LIMIT)], ..FetchSpec::default() };
    let id = fetch_now(&mut client, first).session_id;
    fetch_now(&mut client, FetchSpec { session: (id, 1), ..FetchSpec::default() });
    assert_eq!(reads(), [2, 2]);
    for epoch in 2..12 {
        assert!(
            fetch_now(&mut client, FetchSpec { session: (id, epoch), ..FetchSpec::default() }).partitions.is_empty()
        );
    }
    assert_eq!(reads(), [2, 2]);
    // A change wakes a waiting fetch, which returns only that partition.
    client.send(FETCH, 13, 1, &fetch(&FetchSpec { session: (id, 12), max_wait_ms: 60_000, ..FetchSpec::default() }));
    append(&mut writer, 1, &batch(1, 39));
    assert_eq!(lengths(&fetched(&client.receive().1)), [(1, 100)]);
    assert_eq!(reads()[0], 2);
    // Returned records are read again until the client's next fetch advances.
    for epoch in [13, 14] {
        let again = FetchSpec { session: (id, epoch), ..FetchSpec::default() };
        assert_eq!(lengths(&fetch_now(&mut client, again)), [(1, 100)]);
    }
    let next = FetchSpec { session: (id, 15), partitions: &[(1, 1, LIMIT)], ..FetchSpec::default() };
    assert!(fetch_now(&mut client, next).partitions.is_empty());
    let [untouched, read] = reads();
    fetch_now(&mut client, FetchSpec { session: (id, 16), ..FetchSpec::default() });
    assert_eq!((untouched, reads()), (2, [2, read]));
}

#[test]
fn a_session_that_waits_notices_that_a_quiet_topic_is_deleted() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let first = FetchSpec { session: (0, 0), partitions: &[(0, 0, LIMIT), (1, 0, LIMIT)], ..FetchSpec::default() };
    let id = fetch_now(&mut client, first).session_id;
    client.send(FETCH, 13, 1, &fetch(&FetchSpec { session: (id, 1), max_wait_ms: 60_000, ..FetchSpec::default() }));
    fixture.wait_until(|| [0, 1].iter().all(|&index| fixture.backend.at(NAMED, index).quiet_count() == 1));
    fixture.backend.remove_topics(&[NAMED]);
    let errors: Vec<_> = fetched(&client.receive().1).partitions.iter().map(|(_, error, ..)| *error).collect();
    assert!(errors.contains(&ErrorCode::UNKNOWN_TOPIC_ID), "{errors:?}");
}

#[test]
fn a_session_rejects_other_epochs_and_ends_on_request() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let all = &[(0, 0, LIMIT)];
    let open = |client: &mut Client, session| {
        fetch_now(client, FetchSpec { session, partitions: all, ..FetchSpec::default() }).session_id
    };
    let id = open(&mut client, (0, 0));
    let wrong = fetch_now(&mut client, FetchSpec { session: (id, 2), ..FetchSpec::default() });
    assert_eq!((wrong.error, wrong.session_id), (ErrorCode::INVALID_FETCH_SESSION_EPOCH, 0));
    let other = open(&mut client, (id, 0));
    assert!(other != id && other > 0);
    let gone = fetch_now(&mut client, FetchSpec { session: (id, 1), ..FetchSpec::default() });
    assert_eq!(gone.error, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(open(&mut client, (other, -1)), 0);
    let gone = fetch_now(&mut client, FetchSpec { session: (other, 1), ..FetchSpec::default() });
    assert_eq!(gone.error, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn a_session_of_ids_cannot_continue_by_name() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let first = FetchSpec { session: (0, 0), partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() };
    let id = fetch_now(&mut client, first).session_id;
    // Version 12 differs only in how topics are identified, and this request contains no topic.
    let answer = client.call(FETCH, 12, &fetch(&FetchSpec { session: (id, 1), ..FetchSpec::default() }));
    assert_eq!(fetched(&answer).error, ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
}

#[test]
fn a_slow_reader_gets_everything() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    append(&mut client, 0, &batch(1, 4 << 20));
    let body = fetch(&FetchSpec { partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() });
    for correlation_id in 0..8 {
        client.send(FETCH, 13, correlation_id, &body);
    }
    for correlation_id in 0..8 {
        let mut len = [0; 4];
        client.stream.read_exact(&mut len).expect("an answer");
        let mut left = i32::from_be_bytes(len) as usize;
        let mut answer = Vec::new();
        while left > 0 {
            let mut piece = vec![0; left.min(100_000)];
            client.stream.read_exact(&mut piece).expect("the rest");
            left -= piece.len();
            answer.extend(piece);
        }
        assert_eq!(answer[..4], i32::to_be_bytes(correlation_id));
        assert_eq!(lengths(&fetched(&answer[4..])), [(0, (4 << 20) + 61)]);
    }
}

#[test]
fn a_fetch_ends_with_its_connection() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let spec = FetchSpec { max_wait_ms: 60_000, partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() };
    client.send(FETCH, 13, 1, &fetch(&spec));
    fixture.wait_until(|| fixture.backend.at(NAMED, 0).watcher_count() == 1);
    drop(client);
    fixture.wait_until(|| fixture.backend.at(NAMED, 0).watcher_count() == 0 && fixture.server.connection_count() == 0);
}

#[cfg(target_os = "linux")]
#[test]
fn uncached_bytes_are_read_before_the_response() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    append(&mut client, 0, &batch(1, 3 << 20));
    fixture.backend.at(NAMED, 0).forget_cached();
    let answer = fetch_now(&mut client, FetchSpec { partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() });
    assert_eq!(lengths(&answer), [(0, (3 << 20) + 61)]);
    assert!(answer.partitions[0].3[61..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_file_shorter_than_announced_closes() {
    let fixture = Fixture::new();
    for padding in [100_000, 10] {
        let mut client = fixture.client();
        append(&mut client, 0, &batch(1, padding));
        fixture.backend.at(NAMED, 0).cut_file();
        client.send(FETCH, 13, 1, &fetch(&FetchSpec { partitions: &[(0, 0, LIMIT)], ..FetchSpec::default() }));
        let mut got = Vec::new();
        let _ = client.stream.read_to_end(&mut got);
        assert!(got.len() < padding.max(100), "{}", got.len());
    }
    fixture.wait_until(|| fixture.server.connection_count() == 0);
}
