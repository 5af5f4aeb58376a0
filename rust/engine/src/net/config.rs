//! What the network obeys, under Apache Kafka's keys with its defaults (facts 12).

use std::collections::HashMap;
use std::net::IpAddr;

/// Settings of a server. Sizes in bytes, durations in ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetConfig {
    /// `socket.send.buffer.bytes`; -1: what the system gives.
    pub send_buffer_bytes: i32,
    /// `socket.receive.buffer.bytes`; see [`NetConfig::receive_buffer`].
    pub receive_buffer_bytes: i32,
    /// `socket.request.max.bytes`: the largest frame.
    pub request_bytes_max: i32,
    /// `socket.listen.backlog.size`.
    pub listen_backlog: i32,
    /// `max.connections`: beyond it none is accepted until one closes.
    pub connections_max: usize,
    /// `max.connections.per.ip`: beyond it a connection is closed at once.
    pub connections_per_ip_max: usize,
    /// `max.connections.per.ip.overrides`, resolved.
    pub connections_per_ip_overrides: HashMap<IpAddr, usize>,
    /// `connections.max.idle.ms`; negative: never.
    pub idle_ms_max: i64,
    /// `queued.max.requests`: events of each priority that wait for Python.
    pub queued_requests_max: usize,
    /// `queued.max.request.bytes`: bytes of frames beyond 64 KiB each that are received at a time; -1: no limit.
    pub queued_bytes_max: i64,
    /// `fetch.max.bytes`: the largest answer to a fetch.
    pub fetch_bytes_max: i32,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_slots: usize,
    /// `max.request.partition.size.limit`: partitions in one answer to DescribeTopicPartitions.
    pub request_partitions_max: i32,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            send_buffer_bytes: 102_400,
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES_DEFAULT,
            request_bytes_max: 100 << 20,
            listen_backlog: 50,
            connections_max: i32::MAX as usize,
            connections_per_ip_max: i32::MAX as usize,
            connections_per_ip_overrides: HashMap::new(),
            idle_ms_max: 600_000,
            queued_requests_max: 500,
            queued_bytes_max: -1,
            fetch_bytes_max: 55 << 20,
            fetch_session_slots: 1000,
            request_partitions_max: 2000,
            auto_create_topics: true,
        }
    }
}

/// Apache Kafka's default of `socket.receive.buffer.bytes`.
const RECEIVE_BUFFER_BYTES_DEFAULT: i32 = 102_400;

impl NetConfig {
    /// The size to ask for; `None`: what the system gives.
    ///
    /// That is taken for the default too. A size that is set is a size that stays, and 100 KiB make a megabyte arrive in
    /// eight pieces: a fourth of the CPU time of a produce, measured. The system lets a buffer grow when it helps.
    pub fn receive_buffer(&self) -> Option<usize> {
        let size = Some(self.receive_buffer_bytes).filter(|&size| size != RECEIVE_BUFFER_BYTES_DEFAULT)?;
        usize::try_from(size).ok()
    }

    /// How many connections an address may have.
    pub fn connections_max_of(&self, address: IpAddr) -> usize {
        self.connections_per_ip_overrides.get(&address).copied().unwrap_or(self.connections_per_ip_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_size_that_somebody_chose_is_asked_for() {
        let asked = |receive_buffer_bytes| NetConfig { receive_buffer_bytes, ..NetConfig::default() }.receive_buffer();
        assert_eq!((NetConfig::default().receive_buffer(), asked(-1)), (None, None));
        assert_eq!((asked(65_536), asked(1 << 20)), (Some(65_536), Some(1 << 20)));
    }
}
