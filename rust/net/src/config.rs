//! The network's configuration, with Apache Kafka's keys and defaults (`SocketServerConfigs`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use klamm_base::conditions::Conditions;
use klamm_base::rate::Windows;

use super::share::ShareConfig;

/// Configuration of a server. Sizes in bytes, durations in ms.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// `socket.send.buffer.bytes`; see [`NetConfig::send_buffer`].
    pub send_buffer_bytes: i32,
    /// `socket.receive.buffer.bytes`; see [`NetConfig::receive_buffer`].
    pub receive_buffer_bytes: i32,
    /// `socket.request.max.bytes`: the largest frame.
    pub request_bytes_max: i32,
    /// `socket.listen.backlog.size`.
    pub listen_backlog: i32,
    /// The initial connection limits; they can be changed at run time.
    pub connections: ConnectionLimitsConfig,
    /// `connections.max.idle.ms`; negative: never.
    pub idle_ms_max: i64,
    /// How long requests of a peer that has closed its sending side may wait for their responses; klamm's own, not
    /// configurable.
    pub half_closed_ms_max: u64,
    /// `queued.max.requests`: events of each priority that are queued for Python.
    pub queued_requests_max: usize,
    /// `queued.max.request.bytes`: bytes of frames larger than 64 KiB that are received at a time; -1: no limit.
    pub queued_bytes_max: i64,
    /// `fetch.max.bytes`: the largest response to a fetch.
    pub fetch_bytes_max: i32,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_slots: usize,
    /// `max.request.partition.size.limit`: partitions in one DescribeTopicPartitions response.
    pub request_partitions_max: i32,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// The defaults and bounds of share groups.
    pub share: ShareConfig,
    /// The conditions of a node of an embedded cluster.
    pub conditions: Option<Arc<Conditions>>,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            send_buffer_bytes: SOCKET_BUFFER_BYTES_DEFAULT,
            receive_buffer_bytes: SOCKET_BUFFER_BYTES_DEFAULT,
            request_bytes_max: 100 << 20,
            listen_backlog: 50,
            connections: ConnectionLimitsConfig::default(),
            idle_ms_max: 600_000,
            half_closed_ms_max: 2_000,
            queued_requests_max: 500,
            queued_bytes_max: -1,
            fetch_bytes_max: 55 << 20,
            fetch_session_slots: 1000,
            request_partitions_max: 2000,
            auto_create_topics: true,
            share: ShareConfig::default(),
            conditions: None,
        }
    }
}

/// Apache Kafka's default of `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`.
const SOCKET_BUFFER_BYTES_DEFAULT: i32 = 102_400;

impl NetConfig {
    /// The size to request; `None`: the system's default, also for Kafka's default value. 100 KiB would cut a
    /// response of a megabyte into five parts, with a context switch to the reader and back for each: a third of the
    /// CPU time of a fetch, measured.
    pub fn send_buffer(&self) -> Option<usize> {
        chosen(self.send_buffer_bytes)
    }

    /// The size to request; `None`: the system's default, also for Kafka's default value. With 100 KiB a megabyte
    /// arrives in eight parts: a fourth of the CPU time of a produce, measured.
    pub fn receive_buffer(&self) -> Option<usize> {
        chosen(self.receive_buffer_bytes)
    }
}

/// Limits on the number of connections and on the connection rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimitsConfig {
    /// `max.connections`: at this number, none is accepted until one closes.
    pub most: usize,
    /// `max.connections.per.ip`: further connections are closed immediately.
    pub per_ip_max: usize,
    /// `max.connections.per.ip.overrides`, resolved.
    pub per_ip_overrides: HashMap<IpAddr, usize>,
    /// `max.connection.creation.rate`: connections per second, over the windows below; further ones wait.
    pub creation_rate: usize,
    /// The windows of the rates.
    pub quota_windows: Windows,
}

/// Limits of single listeners by their names: `listener.name.<listener>.<key>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerLimits {
    /// `max.connections`.
    pub most: HashMap<String, usize>,
    /// `max.connection.creation.rate`.
    pub creation_rate: HashMap<String, usize>,
    /// The inter-broker listener, whose connections are accepted even if the limit over all listeners is reached.
    pub inter_broker: Option<String>,
}

impl Default for ConnectionLimitsConfig {
    fn default() -> Self {
        let unlimited = i32::MAX as usize;
        Self {
            most: unlimited,
            per_ip_max: unlimited,
            per_ip_overrides: HashMap::new(),
            creation_rate: unlimited,
            quota_windows: Windows::default(),
        }
    }
}

impl ConnectionLimitsConfig {
    /// The maximum number of connections from an address.
    pub fn max_of(&self, address: IpAddr) -> usize {
        self.per_ip_overrides.get(&address).copied().unwrap_or(self.per_ip_max)
    }
}

/// The configured size of a socket's buffer. A fixed size never changes, while the system enlarges a buffer when it
/// helps, so for the default value the system decides.
fn chosen(size: i32) -> Option<usize> {
    usize::try_from(Some(size).filter(|&size| size != SOCKET_BUFFER_BYTES_DEFAULT)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_sizes_are_requested() {
        for (bytes, asked) in [(102_400, None), (-1, None), (65_536, Some(65_536)), (1 << 20, Some(1 << 20))] {
            let config = NetConfig { send_buffer_bytes: bytes, receive_buffer_bytes: bytes, ..NetConfig::default() };
            assert_eq!((config.send_buffer(), config.receive_buffer()), (asked, asked));
        }
        assert_eq!((NetConfig::default().send_buffer(), NetConfig::default().receive_buffer()), (None, None));
    }
}
