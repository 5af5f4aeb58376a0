//! `FetchAnswers`: the fetches that a leader of the quorum answers, while there is nothing to decide.

use std::sync::Arc;
use std::time::Duration;

use klamm_base::Uuid;
use klamm_quorum::{Answering, Lead, LeasedFetch};
use klamm_wire::topic::NodeEndpoint;
use pyo3::prelude::*;

use super::metadata_log::MetadataLog;
use crate::id::Id;
use crate::node::engine::Engine;

/// See `quorum.pyi`.
#[pyclass(frozen, module = "klamm._engine.quorum")]
pub struct FetchAnswers(Arc<Answering>);

/// Slot, offset of the fetch, end of the log then, age in ms.
type Row = (usize, i64, i64, i64);

#[pymethods]
impl FetchAnswers {
    #[new]
    fn new(log: &MetadataLog, engine: &Engine) -> PyResult<Self> {
        let answering = Arc::new(Answering::new(log.log.clone())?);
        let answering = log.answering.get_or_init(|| answering).clone();
        engine.engine.server().set_answering(answering.clone());
        Ok(Self(answering))
    }

    #[getter]
    fn fd(&self) -> i32 {
        self.0.fd()
    }

    #[getter]
    fn has_news(&self) -> bool {
        self.0.has_news()
    }

    #[pyo3(signature = (*, cluster_id, leader_id, epoch, start_offset, high_watermark, voters, counts_itself, endpoints,
        take_timeout_ms))]
    #[expect(clippy::too_many_arguments, reason = "by name, and each once")]
    fn begin(
        &self,
        cluster_id: String,
        leader_id: i32,
        epoch: i32,
        start_offset: i64,
        high_watermark: i64,
        voters: Vec<(i32, i64)>,
        counts_itself: bool,
        endpoints: Vec<(String, String, i32)>,
        take_timeout_ms: u64,
    ) {
        let endpoint = |(listener, host, port)| (listener, NodeEndpoint { node_id: leader_id, host, port, rack: None });
        self.0.begin(Lead {
            cluster_id,
            leader_id,
            epoch,
            start_offset,
            high_watermark,
            voters,
            counts_itself,
            endpoints: endpoints.into_iter().map(endpoint).collect(),
            take_timeout: Duration::from_millis(take_timeout_ms),
        });
    }

    fn add_replica(&self, replica_id: i32, directory_id: Option<Id>, counts: bool) -> Option<usize> {
        self.0.add_replica(replica_id, directory_id.map_or(Uuid::ZERO, |id| id.0), counts)
    }

    fn raise_high_watermark(&self, offset: i64) {
        self.0.raise_high_watermark(offset);
    }

    fn offer(&self) {
        self.0.offer();
    }

    fn notify_voters(&self) {
        self.0.notify_voters();
    }

    fn take(&self) -> Vec<Row> {
        rows(self.0.take_fetches())
    }

    fn end(&self, py: Python<'_>) -> Vec<Row> {
        rows(py.detach(|| self.0.end()))
    }
}

fn rows(fetches: Vec<LeasedFetch>) -> Vec<Row> {
    let row = |one: LeasedFetch| {
        let age_ms = i64::try_from(one.at.elapsed().as_millis()).unwrap_or(i64::MAX);
        (one.slot, one.fetch_offset, one.end_offset, age_ms)
    };
    fetches.into_iter().map(row).collect()
}
