//! The first half of a node's start, which needs no decisions: binds listeners, locks and reads directories, checks
//! the metadata log, and serves ApiVersions. All other requests wait for the second half.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use klamm_base::LogError;
use klamm_base::clock::now_ms;
use klamm_metadata::MetadataImage;
use klamm_metadata::checkpoint::{CheckpointError, load_snapshot};
use klamm_net::{ListenerOptions, LogLevel, NetConfig, SupportedFeatures, bind};
use klamm_quorum::{ControlEntry, OnLoss, QuorumLog, QuorumLogConfig, check_not_empty};
use klamm_records::control::ControlRecord;
use socket2::Socket;
use tokio::runtime::Handle;

use crate::engine::{Engine, EngineError, EngineOptions, log_context, net_config};

/// Limit on open files of the metadata log.
const OPEN_FILES_MAX: usize = 64;

/// The input of a start.
pub struct BootOptions {
    pub engine: EngineOptions,
    /// The directory of `__cluster_metadata-0`.
    pub metadata_dir: PathBuf,
    pub metadata_log: QuorumLogConfig,
    pub listeners: Vec<ListenerOptions>,
    /// Name, lowest and highest level of each feature that this node supports.
    pub features: Vec<(String, i16, i16)>,
    /// The voters of the configuration; those of the log take precedence.
    pub static_voters: Vec<i32>,
}

/// An image and the offset after its last record.
#[derive(Clone)]
pub struct ImageUpTo {
    pub image: Arc<MetadataImage>,
    pub end_offset: i64,
}

/// A node for which no decision was made yet.
pub struct Booted {
    pub engine: Engine,
    pub log: Arc<QuorumLog>,
    /// The newest snapshot, or an empty image at the log start offset.
    pub snapshot: ImageUpTo,
    /// The image of the whole log; `None` if it is not known to be committed, or cannot be replayed.
    pub whole: Option<ImageUpTo>,
    /// The bound address of each listener.
    pub addresses: Vec<SocketAddr>,
}

/// Why the first half of a start failed.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("cannot listen on {host}:{port}: {reason}")]
    Listen { host: String, port: u16, reason: String, number: Option<i32> },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Snapshot(#[from] CheckpointError),
}

/// Runs the first half on a separate thread; on a failure the directories stay as they were found.
pub fn start(options: BootOptions, runtime: Handle) -> std::io::Result<JoinHandle<Result<Booted, BootError>>> {
    thread::Builder::new().name("klamm-boot".to_owned()).spawn(|| boot(options, runtime))
}

impl Booted {
    /// Closes everything; cleanly stopped logs stay clean.
    pub fn abandon(self) -> Result<(), LogError> {
        self.engine.shutdown(self.engine.replicas().logs().previous_broker_epoch());
        self.log.close()
    }
}

fn boot(options: BootOptions, runtime: Handle) -> Result<Booted, BootError> {
    let BootOptions { engine, metadata_dir, metadata_log, listeners, features, static_voters } = options;
    let node_id = engine.node_id;
    let context = log_context(OPEN_FILES_MAX, engine.is_volatile, engine.conditions.as_ref());
    // First, because an occupied port is the most likely failure, and nothing was changed then.
    let net = net_config(&engine.settings);
    let sockets: Vec<_> = listeners.iter().map(|options| bind_to(&net, options)).collect::<Result<_, _>>()?;
    let engine = Engine::start(engine, runtime)?;
    let opened = (|| {
        let accept = |(socket, options): (_, &ListenerOptions)| {
            engine.server().accept_on(socket, options).map_err(|error| refused(options, &error))
        };
        let addresses = sockets.into_iter().zip(&listeners).map(accept).collect::<Result<_, _>>()?;
        let on_loss = OnLoss::RefuseSoleVoter { node_id, static_voters: &static_voters };
        if let Some(partition) = engine.replicas().logs().found().first() {
            check_not_empty(&metadata_dir, on_loss, &partition.path)?;
        }
        let (log, recovery) = QuorumLog::open(&metadata_dir, &metadata_log, &context, on_loss, now_ms())?;
        for warning in recovery.warnings {
            engine.server().events().log(LogLevel::Warn, warning);
        }
        let read = read_images(&log, node_id, &static_voters).inspect_err(|_| drop(log.close()))?;
        Ok((addresses, Arc::new(log), read))
    })();
    match opened {
        Ok((addresses, log, (snapshot, whole))) => {
            if let Some((whole, kraft_version)) = &whole {
                engine
                    .server()
                    .set_supported_features(SupportedFeatures { ranges: features, kraft_version: *kraft_version });
                engine.server().open_for_versions(Arc::new(whole.image.stable().clone()));
            }
            Ok(Booted { engine, log, snapshot, whole: whole.map(|(whole, _)| whole), addresses })
        }
        Err(error) => {
            // Cleanly stopped logs stay clean.
            engine.shutdown(engine.replicas().logs().previous_broker_epoch());
            Err(error)
        }
    }
}

fn bind_to(net: &NetConfig, options: &ListenerOptions) -> Result<Socket, BootError> {
    bind(net, options).map_err(|error| refused(options, &error))
}

fn refused(options: &ListenerOptions, error: &std::io::Error) -> BootError {
    let text = error.to_string();
    // The error number is reported separately.
    let reason = text.split(" (os error").next().unwrap_or_default().to_owned();
    BootError::Listen { host: options.host.clone(), port: options.port, reason, number: error.raw_os_error() }
}

type Whole = (ImageUpTo, i16);

/// The newest snapshot, and the image of the whole log with its kraft.version.
fn read_images(log: &QuorumLog, node_id: i32, static_voters: &[i32]) -> Result<(ImageUpTo, Option<Whole>), BootError> {
    let snapshot = match log.latest_snapshot() {
        Some(id) if id.end_offset > 0 => {
            let loaded = load_snapshot(&log.snapshot_path(id), id.end_offset, id.epoch);
            let image = loaded.map_err(|error| match error {
                CheckpointError::Storage(error) => BootError::Log(log.with_way_out(id, error)),
                error => BootError::Snapshot(error),
            })?;
            ImageUpTo { image: Arc::new(image), end_offset: id.end_offset }
        }
        _ => ImageUpTo { image: Arc::default(), end_offset: log.start_offset() },
    };
    // The core reads them again later, and reports what is wrong with them.
    let alone = kraft_version_if_alone(&log.control_entries(-1)?, node_id, static_voters);
    let Some(kraft_version) = alone else { return Ok((snapshot, None)) };
    let end_offset = log.end_offset();
    let whole = log.replay(&snapshot.image, snapshot.end_offset, end_offset).ok();
    // Before the first record of a cluster there are no features to report.
    let whole = whole.filter(|image| image.stable().metadata_version().is_some());
    let whole = whole.map(|image| (ImageUpTo { image: Arc::new(image), end_offset }, kraft_version));
    Ok((snapshot, whole))
}

/// The kraft.version if this node has always been the only voter: then its whole log is committed, because no other
/// leader could truncate it.
fn kraft_version_if_alone(entries: &[ControlEntry], node_id: i32, static_voters: &[i32]) -> Option<i16> {
    let mut newest = 0;
    let mut is_alone = static_voters == [node_id];
    for entry in entries {
        match entry.parse() {
            Ok(ControlRecord::KRaftVersion { kraft_version }) => newest = kraft_version,
            Ok(ControlRecord::KRaftVoters { voters }) => match voters.as_slice() {
                [only] if only.id == node_id => is_alone = true,
                _ => return None,
            },
            Ok(_) => {}
            Err(_) => return None,
        }
    }
    is_alone.then_some(newest)
}

#[cfg(test)]
mod tests {
    use klamm_records::control::Voter;

    use super::*;

    fn voters(ids: &[i32]) -> ControlEntry {
        let voter =
            |&id| Voter { id, directory_id: [1; 16], endpoints: vec![], kraft_version_min: 0, kraft_version_max: 1 };
        let record = ControlRecord::KRaftVoters { voters: ids.iter().map(voter).collect() };
        ControlEntry { offset: -1, kind: record.kind(), value: record.value() }
    }

    #[test]
    fn only_a_sole_voter_has_a_committed_log() {
        assert_eq!(kraft_version_if_alone(&[], 1, &[1]), Some(0));
        for others in [&[][..], &[2], &[1, 2]] {
            assert_eq!(kraft_version_if_alone(&[], 1, others), None, "{others:?}");
            assert_eq!(kraft_version_if_alone(&[voters(others)], 1, &[1]), None, "{others:?}");
        }
        assert_eq!(kraft_version_if_alone(&[voters(&[1])], 1, &[]), Some(0));
        assert_eq!(kraft_version_if_alone(&[voters(&[1, 2]), voters(&[1])], 1, &[]), None);
    }
}
