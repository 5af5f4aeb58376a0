//! Records of any type in one table: the type, the object that it concerns, and its fields as JSON.

use klamm_base::Uuid;
use klamm_metadata::frame::{self, RecordError};
use klamm_metadata::records::Record;
use klamm_records::control::ControlRecord;

use super::growing::{bools, some_int32};
use super::{Failure, Found, Places, for_each, json};
use crate::arrow::export::Column;
use crate::records::columns::GrowingBytes;

/// Names of raft's own records, as Apache Kafka has them.
const CONTROL_NAMES: [(i16, &str); 5] = [
    (2, "LeaderChangeMessage"),
    (3, "SnapshotHeaderRecord"),
    (4, "SnapshotFooterRecord"),
    (5, "KRaftVersionRecord"),
    (6, "VotersRecord"),
];

/// Which records, and how much of them. None of both: all records.
pub struct Wanted {
    pub types: Option<Vec<i16>>,
    pub controls: Option<Vec<i16>>,
    pub with_fields: bool,
}

impl Wanted {
    fn has(&self, found: &Found<'_>) -> bool {
        if self.types.is_none() && self.controls.is_none() {
            return true;
        }
        let (list, id) = match found.control {
            Some(kind) => (&self.controls, Some(kind)),
            None => (&self.types, frame::read_frame(found.value).ok().map(|(id, ..)| id)),
        };
        list.as_ref().zip(id).is_some_and(|(list, id)| list.contains(&id))
    }
}

/// The columns while they grow.
struct Growing {
    places: Places,
    types: GrowingBytes,
    controls: Vec<bool>,
    versions: Vec<Option<i32>>,
    topic_ids: GrowingBytes,
    partitions: Vec<Option<i32>>,
    brokers: Vec<Option<i32>>,
    fields: Option<GrowingBytes>,
    scratch: Vec<u8>,
}

/// The table of the records in whole batches.
pub fn overview_of(data: &[u8], wanted: &Wanted) -> Result<Column, Failure> {
    let mut growing = Growing {
        places: Places::default(),
        types: GrowingBytes::new(),
        controls: Vec::new(),
        versions: Vec::new(),
        topic_ids: GrowingBytes::new(),
        partitions: Vec::new(),
        brokers: Vec::new(),
        fields: wanted.with_fields.then(GrowingBytes::new),
        scratch: Vec::new(),
    };
    for_each(data, |found| {
        if wanted.has(found) {
            match found.control {
                Some(kind) => growing.push_control(found, kind)?,
                None => growing.push_record(found),
            }
        }
        Ok(())
    })?;
    Ok(growing.finish())
}

impl Growing {
    fn push_control(&mut self, found: &Found<'_>, kind: i16) -> Result<(), Failure> {
        match CONTROL_NAMES.iter().find(|(known, _)| *known == kind) {
            Some((_, name)) => self.types.push(Some(name.as_bytes())),
            None => self.types.push(Some(format!("control record {kind}").as_bytes())),
        }
        self.push_place(found, None, Concerned::default());
        if let Some(fields) = &mut self.fields {
            let record = ControlRecord::parse(found.key, Some(found.value))?;
            json::write_control(&mut self.scratch, &record, found.value);
            fields.push(Some(&self.scratch));
            self.scratch.clear();
        }
        Ok(())
    }

    fn push_record(&mut self, found: &Found<'_>) {
        match Record::decode(found.value) {
            Ok((record, version)) => {
                self.types.push(Some(record.name().as_bytes()));
                self.push_place(found, Some(i32::from(version)), Concerned::by(&record));
            }
            Err(RecordError::UnknownType(id)) => {
                self.types.push(Some(format!("record {id}").as_bytes()));
                self.push_place(found, None, Concerned::default());
            }
            Err(_) => {
                self.types.push(Some(b"unreadable record"));
                self.push_place(found, None, Concerned::default());
            }
        }
        if let Some(fields) = &mut self.fields {
            if let Err(error) = json::write_record(&mut self.scratch, found.value) {
                self.scratch.clear();
                json::write_unreadable(&mut self.scratch, found.value, &error.to_string());
            }
            fields.push(Some(&self.scratch));
            self.scratch.clear();
        }
    }

    fn push_place(&mut self, found: &Found<'_>, version: Option<i32>, concerned: Concerned) {
        self.places.push(found);
        self.controls.push(found.control.is_some());
        self.versions.push(version);
        self.topic_ids.push(concerned.topic_id.map(|id| id.to_string()).as_deref().map(str::as_bytes));
        self.partitions.push(concerned.partition);
        self.brokers.push(concerned.broker);
    }

    fn finish(self) -> Column {
        let count = self.places.len();
        let mut columns = self.places.finish();
        columns.push(Column::bytes("type", "u", false, self.types));
        columns.push(bools("control", &self.controls));
        columns.push(some_int32("version", self.versions));
        columns.push(Column::bytes("topic_id", "u", true, self.topic_ids));
        columns.push(some_int32("partition", self.partitions));
        columns.push(some_int32("broker", self.brokers));
        columns.extend(self.fields.map(|fields| Column::bytes("fields", "u", true, fields)));
        Column::rows("", count, columns)
    }
}

/// Topic, partition and broker that a record names.
#[derive(Default)]
struct Concerned {
    topic_id: Option<Uuid>,
    partition: Option<i32>,
    broker: Option<i32>,
}

impl Concerned {
    fn by(record: &Record<'_>) -> Self {
        let of_broker = |id| Self { broker: Some(id), ..Self::default() };
        let of_topic = |id, partition| Self { topic_id: Some(id), partition, broker: None };
        match record {
            Record::Topic(record) => of_topic(record.topic_id, None),
            Record::RemoveTopic(record) => of_topic(record.topic_id, None),
            Record::Partition(record) => of_topic(record.topic_id, Some(record.partition_id)),
            Record::PartitionChange(record) => of_topic(record.topic_id, Some(record.partition_id)),
            Record::RegisterBroker(record) => of_broker(record.broker_id),
            Record::UnregisterBroker(record) => of_broker(record.broker_id),
            Record::BrokerRegistrationChange(record) => of_broker(record.broker_id),
            Record::FenceBroker(record) => of_broker(record.id),
            Record::UnfenceBroker(record) => of_broker(record.id),
            Record::ProducerIds(record) => of_broker(record.broker_id),
            _ => Self::default(),
        }
    }
}
