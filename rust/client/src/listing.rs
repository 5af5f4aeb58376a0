//! Offsets for timestamps and for the ends of logs.

use std::collections::BTreeMap;

use super::attempts::Fault;
use super::client::{Client, check_topic};
use super::error::{ClientError, What};
use super::messages::list_offsets::{FoundOffset, ListOffsetsRequest, OffsetQuery};

impl Client {
    /// The first offset at or after a timestamp (or special timestamp) in each partition; -1 if there is no such
    /// record.
    pub async fn offsets(
        &self,
        topic: &str,
        wanted: &BTreeMap<i32, i64>,
    ) -> Result<BTreeMap<i32, FoundOffset>, ClientError> {
        check_topic(topic)?;
        let mut found = BTreeMap::new();
        let first = *wanted.keys().next().unwrap_or(&0);
        let mut call = self.call(What::partition("find offsets of", topic, first))?;
        while found.len() < wanted.len() {
            let open: BTreeMap<i32, i64> = wanted
                .iter()
                .filter(|(index, _)| !found.contains_key(*index))
                .map(|(index, time)| (*index, *time))
                .collect();
            call.now_at(*open.keys().next().expect("one is not found"));
            if let Err(fault) = self.ask_offsets(topic, &open, call.within(), &mut found).await {
                call.wait_after(fault).await?;
            }
        }
        Ok(found)
    }

    /// Sends one request to each leader; stores the found offsets, and returns one of the faults.
    async fn ask_offsets(
        &self,
        topic: &str,
        open: &BTreeMap<i32, i64>,
        within: std::time::Duration,
        found: &mut BTreeMap<i32, FoundOffset>,
    ) -> Result<(), Fault> {
        let mut by_leader: BTreeMap<String, Vec<OffsetQuery>> = BTreeMap::new();
        for (&partition, &timestamp) in open {
            let leader = self.leader(topic, partition, within).await?;
            let query = OffsetQuery { partition, leader_epoch: leader.epoch, timestamp };
            by_leader.entry(leader.address).or_default().push(query);
        }
        let mut outcome = Ok(());
        for (address, partitions) in by_leader {
            let read_committed = self.config.read_committed;
            let request = ListOffsetsRequest { replica_id: -1, read_committed, topic, partitions: &partitions };
            match self.pool.call(&address, &request, within).await {
                Ok(answer) => outcome = outcome.and(take_in(&partitions, &answer, found)),
                Err(error) => outcome = outcome.and(Err(Fault::Link(error))),
            }
        }
        outcome
    }
}

fn take_in(asked: &[OffsetQuery], answer: &[FoundOffset], found: &mut BTreeMap<i32, FoundOffset>) -> Result<(), Fault> {
    let mut outcome = Ok(());
    for query in asked {
        match answer.iter().find(|offset| offset.partition == query.partition) {
            Some(offset) if !offset.error.is_error() => drop(found.insert(query.partition, *offset)),
            Some(offset) => outcome = outcome.and(Err(Fault::Code(offset.error))),
            None => outcome = outcome.and(Err(Fault::LeftOut)),
        }
    }
    outcome
}
