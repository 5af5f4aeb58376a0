//! Requests to coordinators outside of a producer's own transaction: whether transactions are supported, the
//! committed offsets of a group, and the end of a transaction that another process left open on purpose.

use klamm_base::ErrorCode;

use super::super::client::{Client, check_topic};
use super::super::error::{ClientError, What};
use super::super::messages::offset_fetch::{CommittedOffset, OffsetFetchRequest};
use super::super::messages::transactions::{CoordinatorOf, EndTxnRequest, Identity, OfTransaction};
use super::transactions::{check_group, checked};

impl Client {
    /// Finds the coordinator of a transactional id: fails if the brokers do not support transactions.
    pub async fn check_transactions(&self, transactional_id: &str) -> Result<(), ClientError> {
        let mut call = self.producer_call(What::cluster("find the coordinator of the transactional.id"))?;
        while let Err(fault) = self.find_coordinator(transactional_id, CoordinatorOf::Transaction, call.within()).await
        {
            call.wait_after(fault).await?;
        }
        Ok(())
    }

    /// The committed offset of a group for partition 0 of a topic, or all of its offsets.
    pub async fn committed(
        &self,
        group: &str,
        topic: Option<&str>,
        stable: bool,
    ) -> Result<Vec<CommittedOffset>, ClientError> {
        check_group(group)?;
        topic.map_or(Ok(()), check_topic)?;
        let mut call = self.call(What::cluster("read the offsets of a group"))?;
        let request = OffsetFetchRequest { group, topic, stable };
        let error_of = |answer: &Result<Vec<CommittedOffset>, ErrorCode>| answer.as_ref().err().copied();
        let error_of = |answer: &_| error_of(answer).unwrap_or(ErrorCode::NONE);
        loop {
            match self.at_group(group, &request, error_of, call.within()).await {
                Ok(answer) => return Ok(answer.unwrap_or_default()),
                Err(fault) => call.wait_after(fault).await?,
            }
        }
    }

    /// The identity of the transactional producer after `init_transactions`.
    pub fn identity(&self) -> Option<(i64, i16)> {
        self.producer.open.lock().identity.map(|identity| (identity.id, identity.epoch))
    }

    /// Ends a transaction that a producer with this identity left open after all of its records were acknowledged.
    ///
    /// Fails if the transactional id has a newer producer, or the coordinator aborted the transaction.
    pub async fn end_transaction_of(
        &self,
        transactional_id: &str,
        (id, epoch): (i64, i16),
        commit: bool,
    ) -> Result<(), ClientError> {
        let of = OfTransaction { transactional_id, identity: Identity { id, epoch } };
        let verb = if commit { "commit a prepared transaction" } else { "abort a prepared transaction" };
        let mut call = self.producer_call(What::cluster(verb))?;
        let request = EndTxnRequest { of, commit };
        loop {
            let found = self.find_coordinator(transactional_id, CoordinatorOf::Transaction, call.within()).await;
            let ended = match found {
                Ok(address) => checked(self.pool.call(&address, &request, call.within()).await, |error| *error),
                Err(fault) => Err(fault),
            };
            match ended {
                Ok(_) => return Ok(()),
                Err(fault) => call.wait_after(fault).await?,
            }
        }
    }
}
