//! Transactions (KIP-98): consumers see either all or none of a transaction's records, in any number of partitions.

use std::collections::BTreeSet;
use std::time::Duration;

use klamm_base::ErrorCode;
use parking_lot::Mutex;

use super::super::attempts::Fault;
use super::super::client::{Client, check_topic};
use super::super::error::{ClientError, What};
use super::super::link_error::LinkError;
use super::super::messages::Request;
use super::super::messages::transactions::{
    AddOffsetsRequest, AddPartitionsRequest, CoordinatorOf, EndTxnRequest, FindCoordinatorRequest, Identity,
    InitProducerIdRequest, OfTransaction, TxnOffsetCommitRequest,
};
use super::accumulator::Place;

/// The state of a transactional producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Uninitialized,
    Ready,
    InTransaction,
    /// A commit is in progress: whether records produced now belong to it would be undefined.
    Committing,
    /// The transaction cannot be committed any more.
    MustAbort,
}

impl Stage {
    /// `verb`: the operation that requires a transaction.
    pub fn check_in_transaction(self, verb: &'static str) -> Result<(), ClientError> {
        let refused = |why| Err(ClientError::State { verb, why });
        match self {
            Self::InTransaction => Ok(()),
            Self::Uninitialized => refused("transactional.id is set: init_transactions() comes first"),
            Self::Ready => refused("transactional.id is set, and no transaction has begun"),
            Self::Committing => refused("the transaction is being committed"),
            Self::MustAbort => refused("the transaction failed: abort_transaction() comes next"),
        }
    }
}

/// While this exists, a commit is in progress. A cancelled commit leaves the transaction as it was.
struct Committing<'a>(&'a Mutex<Stage>);

impl<'a> Committing<'a> {
    fn begin(stage: &'a Mutex<Stage>) -> Result<Self, ClientError> {
        let mut found = stage.lock();
        found.check_in_transaction("commit")?;
        *found = Stage::Committing;
        Ok(Self(stage))
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let mut stage = self.0.lock();
        if *stage == Stage::Committing {
            *stage = Stage::InTransaction;
        }
    }
}

impl Client {
    fn transactional_id(&self, verb: &'static str) -> Result<&str, ClientError> {
        let id = self.config.producer.transactional_id.as_deref();
        id.ok_or(ClientError::State { verb, why: "the client has no transactional.id" })
    }

    fn of_transaction<'a>(&self, transactional_id: &'a str) -> Result<OfTransaction<'a>, ClientError> {
        let identity = self.producer.open.lock().identity;
        let identity = identity.ok_or(ClientError::State { verb: "go on", why: "init_transactions() comes first" })?;
        Ok(OfTransaction { transactional_id, identity })
    }

    /// Requests a producer id for a producer without transactions.
    pub(super) async fn ask_producer_id(&self, within: Duration) -> Result<Identity, Fault> {
        // The transaction timeout is validated even without transactions.
        let request = InitProducerIdRequest { transactional_id: None, transaction_timeout_ms: i32::MAX };
        let (error, identity) = self.ask_any(&request, within).await?;
        if error.is_error() { Err(Fault::Code(error)) } else { Ok(identity) }
    }

    /// Fences earlier producers with the same id, ends their open transactions, and starts with a new epoch.
    pub async fn init_transactions(&self) -> Result<(), ClientError> {
        let transactional_id = self.transactional_id("begin transactions")?;
        let _changing = self.producer.changing.lock().await;
        if *self.producer.stage.lock() != Stage::Uninitialized {
            return Err(ClientError::State {
                verb: "begin transactions",
                why: "init_transactions() was called before",
            });
        }
        self.renew(transactional_id).await
    }

    async fn renew(&self, transactional_id: &str) -> Result<(), ClientError> {
        let transaction_timeout_ms = self.config.producer.transaction_timeout_ms;
        let request = InitProducerIdRequest { transactional_id: Some(transactional_id), transaction_timeout_ms };
        let what = What::cluster("get a producer id for the transactional.id");
        let mut call = self.producer_call(what)?;
        let (_, identity) = loop {
            let asked = self.at_coordinator(transactional_id, &request, |(error, _)| *error, call.within()).await;
            match asked {
                Ok(answer) => break answer,
                Err(fault) => call.wait_after(fault).await?,
            }
        };
        let mut open = self.producer.open.lock();
        open.reset(Some(identity));
        let mut accumulator = self.producer.accumulator.lock();
        accumulator.reset();
        accumulator.end_transaction();
        *self.producer.stage.lock() = Stage::Ready;
        Ok(())
    }

    pub fn begin_transaction(&self) -> Result<(), ClientError> {
        self.transactional_id("begin a transaction")?;
        let mut stage = self.producer.stage.lock();
        let refused = |why| Err(ClientError::State { verb: "begin a transaction", why });
        match *stage {
            Stage::Ready => *stage = Stage::InTransaction,
            Stage::Uninitialized => return refused("init_transactions() comes first"),
            Stage::InTransaction | Stage::Committing => return refused("one has begun already"),
            Stage::MustAbort => return refused("the one before failed: abort_transaction() comes next"),
        }
        Ok(())
    }

    /// Commits offsets of a group with the transaction: topic, partition, offset, those of a topic adjacent.
    /// `metadata` is stored with each.
    pub async fn add_offsets(
        &self,
        group: &str,
        offsets: &[(String, i32, i64)],
        metadata: &str,
    ) -> Result<(), ClientError> {
        let transactional_id = self.transactional_id("commit offsets with a transaction")?;
        let stage = *self.producer.stage.lock();
        stage.check_in_transaction("commit offsets with a transaction")?;
        let of = self.of_transaction(transactional_id)?;
        check_group(group)?;
        if metadata.len() > METADATA_BYTES_MAX {
            let why = format!("the metadata has {} bytes, {METADATA_BYTES_MAX} are allowed", metadata.len());
            return Err(ClientError::Invalid(why));
        }
        offsets.iter().try_for_each(|(topic, _, _)| check_topic(topic))?;
        let outcome = self.try_add_offsets(of, group, offsets, metadata).await;
        self.mark_failed(&outcome);
        outcome
    }

    async fn try_add_offsets(
        &self,
        of: OfTransaction<'_>,
        group: &str,
        offsets: &[(String, i32, i64)],
        metadata: &str,
    ) -> Result<(), ClientError> {
        let mut call = self.producer_call(What::cluster("add a group to the transaction"))?;
        let request = AddOffsetsRequest { of, group };
        while let Err(fault) = self.at_coordinator(of.transactional_id, &request, |error| *error, call.within()).await {
            call.wait_after(fault).await?;
        }
        self.producer.accumulator.lock().on_enlisted(&BTreeSet::from([(GROUP.into(), -1)]));
        let mut call = self.producer_call(What::cluster("commit offsets of a group with the transaction"))?;
        let request = TxnOffsetCommitRequest { of, group, offsets, metadata };
        while let Err(fault) = self.at_group(group, &request, |error| *error, call.within()).await {
            call.wait_after(fault).await?;
        }
        Ok(())
    }

    /// Flushes, then makes all records of the transaction visible at once.
    pub async fn commit_transaction(&self) -> Result<(), ClientError> {
        let transactional_id = self.transactional_id("commit")?;
        let _committing = Committing::begin(&self.producer.stage)?;
        let flushed = self.flush().await;
        self.mark_failed(&flushed);
        flushed?;
        let ended = self.end_transaction(transactional_id, true).await;
        self.mark_failed(&ended);
        ended
    }

    /// Drops unsent records, and makes consumers skip the others.
    pub async fn abort_transaction(&self) -> Result<(), ClientError> {
        let transactional_id = self.transactional_id("abort")?;
        let stage = *self.producer.stage.lock();
        if !matches!(stage, Stage::InTransaction | Stage::MustAbort) {
            let is_committing = stage == Stage::Committing;
            let why = if is_committing { "the transaction is being committed" } else { "no transaction has begun" };
            return Err(ClientError::State { verb: "abort", why });
        }
        let _changing = self.producer.changing.lock().await;
        self.producer.open.lock().discard();
        self.producer.accumulator.lock().discard();
        self.producer.work.notify_one();
        self.producer.until(|accumulator| accumulator.has_nothing_in_flight()).await?;
        let is_lost = {
            let mut accumulator = self.producer.accumulator.lock();
            accumulator.take_failure();
            accumulator.has_lost()
        };
        // Sequence numbers that were assigned but never sent leave a gap, which requires a new epoch; requesting it
        // also aborts.
        if is_lost { self.renew(transactional_id).await } else { self.end_transaction(transactional_id, false).await }
    }

    async fn end_transaction(&self, transactional_id: &str, commit: bool) -> Result<(), ClientError> {
        let of = self.of_transaction(transactional_id)?;
        if self.producer.accumulator.lock().has_enlisted() {
            let verb = if commit { "commit the transaction" } else { "abort the transaction" };
            let mut call = self.producer_call(What::cluster(verb))?;
            let request = EndTxnRequest { of, commit };
            while let Err(fault) = self.at_coordinator(transactional_id, &request, |error| *error, call.within()).await
            {
                call.wait_after(fault).await?;
            }
        }
        self.producer.accumulator.lock().end_transaction();
        *self.producer.stage.lock() = Stage::Ready;
        Ok(())
    }

    fn mark_failed<T>(&self, outcome: &Result<T, ClientError>) {
        if outcome.is_err() {
            *self.producer.stage.lock() = Stage::MustAbort;
        }
    }

    /// Adds partitions to the transaction, with one attempt.
    pub(super) async fn add_partitions(&self, places: &BTreeSet<Place>) -> Result<(), Fault> {
        let (Some(id), Some(identity)) =
            (self.config.producer.transactional_id.as_deref(), self.producer.open.lock().identity)
        else {
            return Err(Fault::Code(ErrorCode::INVALID_TXN_STATE));
        };
        let of = OfTransaction { transactional_id: id, identity };
        let partitions: Vec<_> = places.iter().map(|(topic, partition)| (&**topic, *partition)).collect();
        let request = AddPartitionsRequest { of, partitions: &partitions };
        let within = Duration::from_millis(self.config.request_timeout_ms);
        self.at_coordinator(id, &request, |error| *error, within).await.map(drop)
    }

    /// Sends a request to the coordinator of the transactional id, finding it first if it is not known.
    async fn at_coordinator<R: Request>(
        &self,
        transactional_id: &str,
        request: &R,
        error_of: impl Fn(&R::Answer) -> ErrorCode,
        within: Duration,
    ) -> Result<R::Answer, Fault> {
        let known = self.producer.coordinator.lock().clone();
        let address = match known {
            Some(address) => address,
            None => self.find_coordinator(transactional_id, CoordinatorOf::Transaction, within).await?,
        };
        *self.producer.coordinator.lock() = Some(address.clone());
        let outcome = checked(self.pool.call(&address, request, within).await, error_of);
        if matches!(&outcome, Err(fault) if is_misled(fault)) {
            *self.producer.coordinator.lock() = None;
        }
        outcome
    }

    pub(super) async fn at_group<R: Request>(
        &self,
        group: &str,
        request: &R,
        error_of: impl Fn(&R::Answer) -> ErrorCode,
        within: Duration,
    ) -> Result<R::Answer, Fault> {
        let address = self.find_coordinator(group, CoordinatorOf::Group, within).await?;
        checked(self.pool.call(&address, request, within).await, error_of)
    }

    pub(super) async fn find_coordinator(
        &self,
        key: &str,
        kind: CoordinatorOf,
        within: Duration,
    ) -> Result<String, Fault> {
        let found = self.ask_any(&FindCoordinatorRequest { key, kind }, within).await?;
        match found.error {
            ErrorCode::NONE => Ok(super::super::cluster::address_of(&found.host, found.port)),
            // The broker does not know this kind of coordinator.
            ErrorCode::INVALID_REQUEST if kind == CoordinatorOf::Transaction => Err(Fault::NoTransactions),
            error => Err(Fault::Code(error)),
        }
    }
}

/// The longest group id that is sent, in bytes.
const GROUP_BYTES_MAX: usize = 1024;
/// The longest offset metadata that is sent; brokers allow less (offset.metadata.max.bytes, 4096).
const METADATA_BYTES_MAX: usize = 16_384;

pub(super) fn check_group(group: &str) -> Result<(), ClientError> {
    if group.is_empty() || group.len() > GROUP_BYTES_MAX {
        let why = format!("'{group:.60}' is no group: it has 1 to {GROUP_BYTES_MAX} bytes");
        return Err(ClientError::Invalid(why));
    }
    Ok(())
}

/// Represents a group among the partitions of a transaction.
const GROUP: &str = "";

pub(super) fn checked<T>(answer: Result<T, LinkError>, error_of: impl Fn(&T) -> ErrorCode) -> Result<T, Fault> {
    let answer = answer?;
    match error_of(&answer) {
        ErrorCode::NONE => Ok(answer),
        error => Err(Fault::Code(error)),
    }
}

/// Whether another broker may be the coordinator.
fn is_misled(fault: &Fault) -> bool {
    matches!(fault, Fault::Link(_) | Fault::Code(ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_times_out_leaves_the_transaction_open() {
        let stage = Mutex::new(Stage::InTransaction);
        let committing = Committing::begin(&stage).expect("a transaction has begun");
        assert!(stage.lock().check_in_transaction("produce").is_err(), "nothing may be produced meanwhile");
        assert!(Committing::begin(&stage).is_err(), "nor committed twice");
        drop(committing);
        assert_eq!(*stage.lock(), Stage::InTransaction);
        let committing = Committing::begin(&stage).expect("it can be tried again");
        *stage.lock() = Stage::Ready;
        drop(committing);
        assert_eq!(*stage.lock(), Stage::Ready);
    }
}
