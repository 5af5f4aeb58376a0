//! Share groups over sockets: sessions, acknowledgements, waiting, and calls of the share coordinator.

use klamm_base::ErrorCode;
use klamm_wire::api::{PRODUCE, READ_SHARE_GROUP_STATE, SHARE_FETCH};

use crate::testing::{Client, Fixture, NAMED, OTHER, ShareFetchSpec, SharePart, batch, produce};

const EARLIEST: &[(&str, &str)] = &[("share.auto.offset.reset", "earliest")];

fn append(client: &mut Client, index: i32, records: i32) {
    client.call(PRODUCE, 9, &produce(1, 1000, &[(index, &batch(records, 39))]));
}

/// A group that reads from the beginning, with one log batch 0-9 in partition 0.
fn with_ten() -> (Fixture, Client) {
    let fixture = Fixture::sharing(EARLIEST);
    append(&mut fixture.client(), 0, 10);
    let client = fixture.client();
    (fixture, client)
}

/// Opens a session of `m` that acquires 0-9.
fn acquire_ten(fixture: &Fixture, client: &mut Client) {
    client.send_share_fetch(ShareFetchSpec { max_wait_ms: 60_000, ..ShareFetchSpec::default() });
    fixture.answer_read(-1, &[]);
    let (error, parts) = client.receive_share_fetch();
    assert_eq!((error, &parts[0].acquired[..], parts[0].records.len()), (0, &[(0, 9, 1)][..], 100));
}

fn acquired(parts: &[SharePart]) -> Vec<(i64, i64, i16)> {
    parts.iter().flat_map(|part| part.acquired.clone()).collect()
}

#[test]
fn without_the_feature_share_groups_are_not_supported() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let unsupported = (ErrorCode::UNSUPPORTED_VERSION.0, vec![]);
    assert_eq!(client.share_fetch(ShareFetchSpec::default()), unsupported);
    client.send_share_acknowledge(1, false, &[]);
    assert_eq!(client.receive_share_acknowledge(), unsupported);
}

#[test]
fn a_first_fetch_waits_for_the_state_and_acquires() {
    let (fixture, mut client) = with_ten();
    client.send_share_fetch(ShareFetchSpec { max_wait_ms: 60_000, ..ShareFetchSpec::default() });
    let call = fixture.share_call();
    assert_eq!((call.api_key, &*call.group_id, call.topic, call.index), (READ_SHARE_GROUP_STATE, "g", NAMED, 0));
    // The persister fails: the fetch is answered with the error, and the next one tries again.
    fixture.server.share_state_answered(call.request_id, ErrorCode::NOT_COORDINATOR, &[]);
    let (error, parts) = client.receive_share_fetch();
    assert_eq!((error, parts[0].error), (0, ErrorCode::COORDINATOR_NOT_AVAILABLE.0));
    client.send_share_fetch(ShareFetchSpec {
        epoch: 1,
        max_wait_ms: 60_000,
        partitions: &[],
        ..ShareFetchSpec::default()
    });
    fixture.answer_read(-1, &[]);
    assert_eq!(acquired(&client.receive_share_fetch().1), [(0, 9, 1)]);
}

#[test]
fn a_group_without_a_start_offset_begins_at_the_high_watermark() {
    let fixture = Fixture::sharing(&[]);
    let (mut client, mut writer) = (fixture.client(), fixture.client());
    append(&mut writer, 0, 10);
    client.send_share_fetch(ShareFetchSpec { max_wait_ms: 60_000, ..ShareFetchSpec::default() });
    fixture.answer_read(-1, &[]);
    fixture.wait_until(|| fixture.backend.at(NAMED, 0).watcher_count() > 0);
    append(&mut writer, 0, 5);
    assert_eq!(acquired(&client.receive_share_fetch().1), [(10, 14, 1)]);
}

#[test]
fn a_start_offset_below_the_log_start_is_raised() {
    let (fixture, mut client) = with_ten();
    client.send_share_fetch(ShareFetchSpec { max_wait_ms: 60_000, ..ShareFetchSpec::default() });
    fixture.answer_read(-5, &[]);
    assert_eq!(acquired(&client.receive_share_fetch().1), [(0, 9, 1)]);
}

#[test]
fn epochs_of_sessions_follow_each_other() {
    let (fixture, mut client) = with_ten();
    let continued = |epoch| ShareFetchSpec { epoch, partitions: &[], ..ShareFetchSpec::default() };
    assert_eq!(client.share_fetch(continued(1)).0, ErrorCode::SHARE_SESSION_NOT_FOUND.0);
    acquire_ten(&fixture, &mut client);
    assert_eq!(client.share_fetch(continued(2)).0, ErrorCode::INVALID_SHARE_SESSION_EPOCH.0);
    assert_eq!(client.share_fetch(continued(1)), (0, vec![]));
    client.send_share_acknowledge(2, false, &[]);
    assert_eq!(client.receive_share_acknowledge(), (0, vec![]));
    client.send_share_acknowledge(0, false, &[]);
    assert_eq!(client.receive_share_acknowledge().0, ErrorCode::INVALID_SHARE_SESSION_EPOCH.0);
    assert_eq!(client.share_fetch(continued(3)), (0, vec![]));
    assert_eq!(client.share_fetch(continued(-1)), (0, vec![]));
    assert_eq!(client.share_fetch(continued(-1)).0, ErrorCode::SHARE_SESSION_NOT_FOUND.0);
}

#[test]
fn the_length_of_a_member_id_is_limited() {
    let (_fixture, mut client) = with_ten();
    let long = "x".repeat(37);
    for member in [&*long, ""] {
        let answer = client.share_fetch(ShareFetchSpec { member, ..ShareFetchSpec::default() });
        assert_eq!(answer.0, ErrorCode::INVALID_REQUEST.0);
    }
}

#[test]
fn records_are_limited_only_in_their_mode() {
    for (acquire_mode, expected) in [(0, vec![(0, 9, 1)]), (1, vec![(0, 4, 1)])] {
        let (fixture, mut client) = with_ten();
        let few = ShareFetchSpec { max_wait_ms: 60_000, max_records: 5, acquire_mode, ..ShareFetchSpec::default() };
        client.send_share_fetch(few);
        fixture.answer_read(-1, &[]);
        assert_eq!(acquired(&client.receive_share_fetch().1), expected);
        let (_, parts) = client.share_fetch(ShareFetchSpec { epoch: 1, partitions: &[], max_wait_ms: 0, ..few });
        assert_eq!(acquired(&parts), if acquire_mode == 1 { vec![(5, 9, 1)] } else { vec![] });
    }
}

#[test]
fn an_acknowledgement_is_answered_when_it_is_written() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    client.send_share_acknowledge(1, false, &[(0, &[(0, 4, &[1])])]);
    fixture.answer_write(ErrorCode::NONE);
    let (error, parts) = client.receive_share_acknowledge();
    assert_eq!((error, parts[0].error), (0, 0));
    // The rest with a fetch, which then finds nothing.
    client.send_share_fetch(ShareFetchSpec {
        epoch: 2,
        partitions: &[(0, &[(5, 9, &[2, 2, 1, 1, 1])])],
        ..ShareFetchSpec::default()
    });
    fixture.answer_write(ErrorCode::NONE);
    let (_, parts) = client.receive_share_fetch();
    assert_eq!((parts[0].acknowledge_error, &parts[0].acquired[..]), (0, &[(5, 6, 2)][..]));
}

#[test]
fn a_failed_write_leaves_records_acquired() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    client.send_share_acknowledge(1, false, &[(0, &[(0, 9, &[1])])]);
    let call = fixture.share_call();
    fixture.server.share_state_answered(call.request_id, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, &[]);
    assert_eq!(client.receive_share_acknowledge().1[0].error, ErrorCode::COORDINATOR_NOT_AVAILABLE.0);
    client.send_share_acknowledge(2, false, &[(0, &[(0, 9, &[1])])]);
    fixture.answer_write(ErrorCode::FENCED_LEADER_EPOCH);
    let part = &client.receive_share_acknowledge().1[0];
    assert_eq!((part.error, part.leader), (ErrorCode::NOT_LEADER_OR_FOLLOWER.0, (1, 5)));
    // The share partition was dropped.
    client.send_share_acknowledge(3, false, &[(0, &[(0, 9, &[1])])]);
    assert_eq!(client.receive_share_acknowledge().1[0].error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0);
}

#[test]
fn acknowledgements_are_checked() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    let mut epoch = 0;
    let mut error_of = |is_renew, types: &[u8], first, last| {
        epoch += 1;
        client.send_share_acknowledge(epoch, is_renew, &[(0, &[(first, last, types)])]);
        ErrorCode(client.receive_share_acknowledge().1[0].error)
    };
    assert_eq!(error_of(false, &[1, 2], 0, 9), ErrorCode::INVALID_REQUEST);
    assert_eq!(error_of(false, &[4], 0, 9), ErrorCode::INVALID_REQUEST);
    assert_eq!(error_of(false, &[5], 0, 9), ErrorCode::INVALID_REQUEST);
    assert_eq!(error_of(false, &[1], 0, 10), ErrorCode::INVALID_REQUEST);
    assert_eq!(error_of(true, &[4], 0, 9), ErrorCode::NONE);
    let renewal = |max_bytes| ShareFetchSpec {
        epoch: 6,
        is_renew: true,
        min_bytes: 0,
        max_records: 0,
        max_bytes,
        partitions: &[(0, &[(0, 9, &[4])])],
        ..ShareFetchSpec::default()
    };
    assert_eq!(client.share_fetch(renewal(1)).0, ErrorCode::INVALID_REQUEST.0);
    let (error, parts) = client.share_fetch(renewal(0));
    assert_eq!((error, parts[0].acknowledge_error, acquired(&parts)), (0, 0, vec![]));
    let other = ShareFetchSpec { member: "other", ..ShareFetchSpec::default() };
    assert_eq!(client.share_fetch(other).0, 0);
    let foreign = ShareFetchSpec { member: "other", epoch: 1, partitions: &[(0, &[(0, 9, &[1])])], ..other };
    assert_eq!(client.share_fetch(foreign).1[0].acknowledge_error, ErrorCode::INVALID_RECORD_STATE.0);
}

#[test]
fn the_end_of_a_session_releases_its_records() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    client.send_share_fetch(ShareFetchSpec {
        epoch: -1,
        partitions: &[(0, &[(0, 4, &[1])])],
        ..ShareFetchSpec::default()
    });
    fixture.answer_write(ErrorCode::NONE);
    assert_eq!(client.receive_share_fetch().1[0].acknowledge_error, 0);
    fixture.answer_write(ErrorCode::NONE);
    let mut other = fixture.client();
    let (_, parts) = other.share_fetch(ShareFetchSpec { member: "other", ..ShareFetchSpec::default() });
    assert_eq!(acquired(&parts), [(5, 9, 2)]);
}

#[test]
fn the_end_of_a_connection_releases_its_records_and_wakes_others() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    let mut other = fixture.client();
    other.send_share_fetch(ShareFetchSpec { member: "other", max_wait_ms: 60_000, ..ShareFetchSpec::default() });
    fixture.wait_until(|| fixture.backend.at(NAMED, 0).watcher_count() > 0);
    drop(client);
    fixture.answer_write(ErrorCode::NONE);
    assert_eq!(acquired(&other.receive_share_fetch().1), [(0, 9, 2)]);
}

#[test]
fn without_sessions_a_group_is_forgotten_once_everything_is_written() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    client.send_share_acknowledge(1, false, &[(0, &[(0, 4, &[1])])]);
    let write = fixture.share_call();
    drop(client);
    let mut writer = klamm_base::primitives::Writer::new();
    writer.slice(&[2]);
    writer.uuid(NAMED);
    writer.slice(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // The release is written after the acknowledgement, and then the state is read again.
    fixture.server.share_state_answered(write.request_id, ErrorCode::NONE, &writer.into_bytes());
    fixture.answer_write(ErrorCode::NONE);
    let mut other = fixture.client();
    other.send_share_fetch(ShareFetchSpec { member: "other", max_wait_ms: 60_000, ..ShareFetchSpec::default() });
    fixture.answer_read(5, &[(5, 9, 0, 1)]);
    assert_eq!(acquired(&other.receive_share_fetch().1), [(5, 9, 2)]);
}

#[test]
fn locks_end_and_waiting_fetches_are_woken() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    let mut other = fixture.client();
    other.send_share_fetch(ShareFetchSpec { member: "other", max_wait_ms: 60_000, ..ShareFetchSpec::default() });
    fixture.wait_until(|| fixture.backend.at(NAMED, 0).watcher_count() > 0);
    fixture.backend.pass(30_100);
    assert_eq!(acquired(&other.receive_share_fetch().1), [(0, 9, 2)]);
    fixture.answer_write(ErrorCode::NONE);
    client.send_share_acknowledge(1, false, &[(0, &[(0, 9, &[1])])]);
    assert_eq!(client.receive_share_acknowledge().1[0].error, ErrorCode::INVALID_RECORD_STATE.0);
}

#[test]
fn answered_fetches_are_counted_by_group() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    assert_eq!(client.share_fetch(ShareFetchSpec { max_wait_ms: 1, ..continued(1) }), (0, vec![]));
    let counted = |name: &str| fixture.server.share_counters().find(|(found, _)| found == name).map(|(_, count)| count);
    let ratio = "type=ShareGroupMetrics,name=RequestTopicPartitionsFetchRatio";
    assert_eq!(counted(&format!("kafka.server:{ratio},group=g")), Some(2));
    assert_eq!(counted(&format!("klamm.share:{ratio}Total,group=g")), Some(200));
    assert_eq!(counted("kafka.server:type=DelayedShareFetchMetrics,name=ExpiresPerSec"), Some(1));
}

/// A fetch that continues the session of `m`.
fn continued(epoch: i32) -> ShareFetchSpec<'static> {
    ShareFetchSpec { epoch, partitions: &[], max_wait_ms: 60_000, ..ShareFetchSpec::default() }
}

#[test]
fn a_panic_while_locks_end_gives_up_one_share_partition() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    fixture.backend.break_once();
    fixture.backend.pass(30_100);
    fixture.wait_until(|| !fixture.backend.is_broken());
    assert!(fixture.log_line().contains("its locks could not be ended"));
    // It is loaded again, and the locks of the next fetch end.
    client.send_share_fetch(continued(1));
    fixture.answer_read(-1, &[]);
    assert_eq!(acquired(&client.receive_share_fetch().1), [(0, 9, 1)]);
    client.send_share_fetch(continued(2));
    fixture.backend.pass(30_100);
    assert_eq!(acquired(&client.receive_share_fetch().1), [(0, 9, 2)]);
}

#[test]
fn a_panic_at_an_answer_of_the_share_coordinator_gives_up_one_share_partition() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    client.send_share_acknowledge(1, false, &[(0, &[(0, 9, &[1])])]);
    let call = fixture.share_call();
    fixture.backend.break_once();
    fixture.server.share_state_answered(call.request_id, ErrorCode::NOT_COORDINATOR, &[]);
    assert_eq!(client.receive_share_acknowledge().1[0].error, ErrorCode::UNKNOWN_SERVER_ERROR.0);
    client.send_share_fetch(continued(2));
    fixture.answer_read(-1, &[]);
    assert_eq!(acquired(&client.receive_share_fetch().1), [(0, 9, 1)]);
}

#[test]
fn a_higher_log_start_moves_the_group() {
    let (fixture, mut client) = with_ten();
    append(&mut fixture.client(), 0, 10);
    client.send_share_fetch(ShareFetchSpec { max_wait_ms: 60_000, ..ShareFetchSpec::default() });
    fixture.backend.at(NAMED, 0).state.lock().log_start_offset = 15;
    fixture.answer_read(10, &[]);
    assert_eq!(client.receive_share_fetch(), (0, vec![SharePart::default()]));
    let (_, parts) = client.share_fetch(ShareFetchSpec { epoch: 1, partitions: &[], ..ShareFetchSpec::default() });
    assert_eq!(acquired(&parts), [(15, 19, 1)]);
}

#[test]
fn a_gap_of_any_length_is_skipped() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    // As after compaction: the next log batch begins further away than the number of records in a fetch.
    fixture.backend.at(NAMED, 0).state.lock().end_offset = 5000;
    append(&mut fixture.client(), 0, 10);
    let (_, parts) = client.share_fetch(ShareFetchSpec { epoch: 1, partitions: &[], ..ShareFetchSpec::default() });
    assert_eq!(acquired(&parts), [(5000, 5009, 1)]);
}

#[test]
fn a_partition_that_is_led_elsewhere_names_its_leader() {
    let fixture = Fixture::sharing(EARLIEST);
    let mut client = fixture.client();
    let (_, parts) = client.share_fetch(ShareFetchSpec { topic: OTHER, ..ShareFetchSpec::default() });
    assert_eq!((parts[0].error, parts[0].leader), (ErrorCode::NOT_LEADER_OR_FOLLOWER.0, (9, 5)));
    let unknown = ShareFetchSpec { member: "n", topic: klamm_base::Uuid([9; 16]), ..ShareFetchSpec::default() };
    assert_eq!(client.share_fetch(unknown).1[0].error, ErrorCode::UNKNOWN_TOPIC_ID.0);
}

#[test]
fn a_deleted_topic_ends_waiting_fetches() {
    let (fixture, mut client) = with_ten();
    acquire_ten(&fixture, &mut client);
    client.send_share_fetch(ShareFetchSpec {
        epoch: 1,
        max_wait_ms: 60_000,
        partitions: &[],
        ..ShareFetchSpec::default()
    });
    fixture.wait_until(|| fixture.backend.at(NAMED, 0).watcher_count() > 0);
    fixture.backend.remove_topics(&[NAMED]);
    let (error, parts) = client.receive_share_fetch();
    assert_eq!((error, parts.len()), (0, 1));
    assert_ne!(parts[0].error, 0);
    assert_eq!(fixture.server.share_gauges()[0].1, 1);
}

#[test]
fn a_fetch_begins_with_the_least_recently_served_partition_and_reads_only_what_it_needs() {
    let fixture = Fixture::sharing(EARLIEST);
    let mut client = fixture.client();
    for index in [0, 1, 0, 1, 0, 1] {
        append(&mut fixture.client(), index, 10);
    }
    let spec = ShareFetchSpec { max_records: 10, max_wait_ms: 60_000, ..ShareFetchSpec::default() };
    client.send_share_fetch(ShareFetchSpec { partitions: &[(0, &[]), (1, &[])], ..spec });
    fixture.answer_read(-1, &[]);
    let mut served = vec![client.receive_share_fetch().1];
    fixture.answer_read(-1, &[]);
    let reads = || (0..2).map(|index| fixture.backend.at(NAMED, index).state.lock().fetches).sum::<usize>();
    for epoch in 1..6 {
        let before = reads();
        served.push(client.share_fetch(ShareFetchSpec { epoch, partitions: &[], ..spec }).1);
        assert_eq!(reads() - before, 1);
    }
    let places: Vec<_> = served.iter().flatten().map(|part| (part.index, part.acquired[0].0)).collect();
    assert_eq!(places, [(0, 0), (1, 0), (0, 10), (1, 10), (0, 20), (1, 20)]);
}

#[test]
fn fetches_wait_for_their_min_bytes() {
    let (fixture, mut client) = with_ten();
    client.send_share_fetch(ShareFetchSpec { max_wait_ms: 60_000, min_bytes: 150, ..ShareFetchSpec::default() });
    fixture.answer_read(-1, &[]);
    fixture.wait_until(|| fixture.backend.at(NAMED, 0).watcher_count() > 0);
    append(&mut fixture.client(), 0, 3);
    assert_eq!(acquired(&client.receive_share_fetch().1), [(0, 12, 1)]);
    // At the end of the wait it returns the available records.
    append(&mut fixture.client(), 0, 2);
    let little =
        ShareFetchSpec { epoch: 1, max_wait_ms: 20, min_bytes: 150, partitions: &[], ..ShareFetchSpec::default() };
    assert_eq!(acquired(&client.share_fetch(little).1), [(13, 14, 1)]);
}

#[test]
fn garbage_closes_the_connection() {
    let (_fixture, mut client) = with_ten();
    client.send(SHARE_FETCH, 2, 1, &[1, 2, 3]);
    assert!(client.is_closed());
}
