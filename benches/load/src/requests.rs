//! Small requests: ApiVersions, OffsetCommit, CreateTopics, and the error codes of their responses.

use std::io;

use crate::{finish, get_uvarint, header, put_name, put_uvarint};

const OFFSET_COMMIT: i16 = 8;
const OFFSET_COMMIT_VERSION: i16 = 8;
const API_VERSIONS: i16 = 18;
const CREATE_TOPICS: i16 = 19;
const CREATE_TOPICS_VERSION: i16 = 5;

/// A complete ApiVersions v0 frame.
pub fn api_versions_frame(correlation: i32) -> Vec<u8> {
    let mut out = header(API_VERSIONS, 0, correlation);
    // Version 0 has a header without tagged fields.
    out.pop();
    finish(out)
}

/// A complete OffsetCommit v8 frame of a consumer without a group generation: offset `offset` of one partition.
pub fn offset_commit_frame(correlation: i32, group: &str, topic: &str, partition: i32, offset: i64) -> Vec<u8> {
    let mut out = header(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, correlation);
    put_name(&mut out, group);
    out.extend_from_slice(&(-1i32).to_be_bytes());
    put_name(&mut out, "");
    out.push(0);
    put_uvarint(&mut out, 2);
    put_name(&mut out, topic);
    put_uvarint(&mut out, 2);
    out.extend_from_slice(&partition.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&(-1i32).to_be_bytes());
    put_name(&mut out, "");
    out.extend_from_slice(&[0, 0, 0]);
    finish(out)
}

/// A complete CreateTopics v5 frame: one topic with one partition and one replica.
pub fn create_topic_frame(correlation: i32, topic: &str) -> Vec<u8> {
    let mut out = header(CREATE_TOPICS, CREATE_TOPICS_VERSION, correlation);
    put_uvarint(&mut out, 2);
    put_name(&mut out, topic);
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&1i16.to_be_bytes());
    // Neither assignments nor configurations, and no tagged fields.
    out.extend_from_slice(&[1, 1, 0]);
    out.extend_from_slice(&30_000i32.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    finish(out)
}

/// Checks that every partition's error code in a Produce v9 response is 0.
pub fn check_produced(body: &[u8]) -> io::Result<()> {
    let mut at = 5;
    for _ in 1..get_uvarint(body, &mut at) {
        at += get_uvarint(body, &mut at) - 1;
        for _ in 1..get_uvarint(body, &mut at) {
            check_code("produce", body, at + 4)?;
            at += 4 + 2 + 8 + 8 + 8;
            // Without an error there are neither record errors nor a message.
            at += 3;
        }
        at += 1;
    }
    Ok(())
}

/// Checks that the only partition's error code in an OffsetCommit v8 response is 0.
pub fn check_committed(body: &[u8]) -> io::Result<()> {
    let mut at = 5 + 4;
    get_uvarint(body, &mut at);
    at += get_uvarint(body, &mut at) - 1;
    get_uvarint(body, &mut at);
    check_code("offset commit", body, at + 4)
}

/// Checks that the only topic's error code in a CreateTopics v5 response is 0.
pub fn check_created(body: &[u8]) -> io::Result<()> {
    let mut at = 5 + 4;
    get_uvarint(body, &mut at);
    at += get_uvarint(body, &mut at) - 1;
    check_code("create topic", body, at)
}

fn check_code(what: &str, body: &[u8], at: usize) -> io::Result<()> {
    match i16::from_be_bytes([body[at], body[at + 1]]) {
        0 => Ok(()),
        code => Err(io::Error::other(format!("{what} failed with error code {code}"))),
    }
}
