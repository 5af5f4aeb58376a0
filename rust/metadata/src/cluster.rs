//! Registered brokers and controllers.
use std::collections::BTreeMap;

use klamm_base::Uuid;

use crate::field::{Array, Field};
use crate::records::{
    BrokerEndpoint, BrokerFeature, BrokerRegistrationChangeRecord, ControllerEndpoint, ControllerFeature,
    RegisterBrokerRecord, RegisterControllerRecord,
};
use crate::replay_error::ReplayError;

/// The address of a node's listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Listener name.
    pub name: String,
    pub host: String,
    pub port: u16,
    /// 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// The levels of a feature that a node supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    pub name: String,
    pub level_min: i16,
    pub level_max: i16,
}

/// A registered broker. Endpoints and features are sorted by name, directories by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRegistration {
    pub id: i32,
    pub epoch: i64,
    pub incarnation_id: Uuid,
    pub endpoints: Vec<Endpoint>,
    pub features: Vec<SupportedFeature>,
    pub rack: Option<String>,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    pub is_migrating_zk_broker: bool,
    /// Online directories; empty if the broker did not report them.
    pub log_dirs: Vec<Uuid>,
    /// Directories that are closed to new replicas; `None` until the broker reports them.
    pub cordoned_log_dirs: Option<Vec<Uuid>>,
}

impl BrokerRegistration {
    pub(super) fn from_record(record: &RegisterBrokerRecord<'_>) -> Result<Self, ReplayError> {
        let id = record.broker_id;
        Ok(Self {
            id,
            epoch: record.broker_epoch,
            incarnation_id: record.incarnation_id,
            endpoints: named(id, record.end_points)?,
            features: supported(record.features),
            rack: record.rack.map(str::to_owned),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            is_migrating_zk_broker: record.is_migrating_zk_broker,
            log_dirs: sorted(record.log_dirs),
            cordoned_log_dirs: record.cordoned_log_dirs.map(sorted),
        })
    }

    /// Calls `write` with the record of this registration.
    pub fn with_record<R>(&self, write: impl FnOnce(RegisterBrokerRecord<'_>) -> R) -> R {
        let end_points: Vec<BrokerEndpoint<'_>> = self.endpoints.iter().map(BrokerEndpoint::from).collect();
        let features: Vec<BrokerFeature<'_>> = self.features.iter().map(BrokerFeature::from).collect();
        write(RegisterBrokerRecord {
            broker_id: self.id,
            is_migrating_zk_broker: self.is_migrating_zk_broker,
            incarnation_id: self.incarnation_id,
            broker_epoch: self.epoch,
            end_points: (&end_points).into(),
            features: (&features).into(),
            rack: self.rack.as_deref(),
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
            log_dirs: (&self.log_dirs).into(),
            cordoned_log_dirs: self.cordoned_log_dirs.as_ref().map(Into::into),
        })
    }

    /// Whether the broker may lead: neither fenced nor in controlled shutdown.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// Whether a replica in the directory is online (KIP-858). Without a list of directories, all except LOST are.
    pub fn has_online_dir(&self, directory: Uuid) -> bool {
        match directory {
            Uuid::ZERO | Uuid::UNASSIGNED => true,
            Uuid::LOST => false,
            _ => self.log_dirs.is_empty() || self.log_dirs.contains(&directory),
        }
    }

    /// Whether new replicas may be placed in one of its directories.
    pub fn has_uncordoned_dir(&self) -> bool {
        match &self.cordoned_log_dirs {
            Some(cordoned) if !self.log_dirs.is_empty() => self.log_dirs.iter().any(|dir| !cordoned.contains(dir)),
            _ => true,
        }
    }

    /// The directory with which a new replica is recorded: the only one, or UNASSIGNED until the broker chooses one.
    pub fn default_dir(&self) -> Uuid {
        match self.log_dirs.as_slice() {
            [] => Uuid::ZERO,
            [only] => *only,
            _ => Uuid::UNASSIGNED,
        }
    }

    pub(super) fn check_epoch(&self, epoch: i64) -> Result<(), ReplayError> {
        if self.epoch == epoch {
            return Ok(());
        }
        Err(ReplayError::BrokerEpoch { broker_id: self.id, registered: self.epoch, epoch })
    }

    pub(super) fn change(&mut self, record: &BrokerRegistrationChangeRecord<'_>) -> Result<(), ReplayError> {
        let invalid = |field, value| Err(ReplayError::RegistrationChange { broker_id: record.broker_id, field, value });
        match record.fenced {
            0 => {}
            -1 => self.fenced = false,
            1 => self.fenced = true,
            value => return invalid("fenced", value),
        }
        match record.in_controlled_shutdown {
            0 => {}
            1 => self.in_controlled_shutdown = true,
            value => return invalid("in_controlled_shutdown", value),
        }
        if !record.log_dirs.is_empty() {
            self.log_dirs = sorted(record.log_dirs);
        }
        if let Some(cordoned) = record.cordoned_log_dirs {
            self.cordoned_log_dirs = Some(sorted(cordoned));
        }
        Ok(())
    }
}

/// A registered controller (KIP-919).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerRegistration {
    pub id: i32,
    pub incarnation_id: Uuid,
    pub zk_migration_ready: bool,
    pub endpoints: Vec<Endpoint>,
    pub features: Vec<SupportedFeature>,
}

impl ControllerRegistration {
    pub(super) fn from_record(record: &RegisterControllerRecord<'_>) -> Result<Self, ReplayError> {
        let id = record.controller_id;
        Ok(Self {
            id,
            incarnation_id: record.incarnation_id,
            zk_migration_ready: record.zk_migration_ready,
            endpoints: named(id, record.end_points)?,
            features: supported(record.features),
        })
    }

    /// Calls `write` with the record of this registration.
    pub fn with_record<R>(&self, write: impl FnOnce(RegisterControllerRecord<'_>) -> R) -> R {
        let end_points: Vec<ControllerEndpoint<'_>> = self.endpoints.iter().map(ControllerEndpoint::from).collect();
        let features: Vec<ControllerFeature<'_>> = self.features.iter().map(ControllerFeature::from).collect();
        write(RegisterControllerRecord {
            controller_id: self.id,
            incarnation_id: self.incarnation_id,
            zk_migration_ready: self.zk_migration_ready,
            end_points: (&end_points).into(),
            features: (&features).into(),
        })
    }
}

// The lists of a registration are unordered: a snapshot of Apache Kafka has them in another order. So they are sorted
// here.

fn named<'r, E>(id: i32, records: Array<'r, E>) -> Result<Vec<Endpoint>, ReplayError>
where
    E: Field<'r>,
    Endpoint: From<E>,
{
    let by_name: BTreeMap<String, Endpoint> =
        records.iter().map(Endpoint::from).map(|endpoint| (endpoint.name.clone(), endpoint)).collect();
    match by_name.contains_key("") {
        true => Err(ReplayError::UnnamedListener(id)),
        false => Ok(by_name.into_values().collect()),
    }
}

fn supported<'r, F>(records: Array<'r, F>) -> Vec<SupportedFeature>
where
    F: Field<'r>,
    SupportedFeature: From<F>,
{
    let by_name: BTreeMap<String, SupportedFeature> =
        records.iter().map(SupportedFeature::from).map(|feature| (feature.name.clone(), feature)).collect();
    by_name.into_values().collect()
}

fn sorted(ids: Array<'_, Uuid>) -> Vec<Uuid> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}

// Brokers and controllers have separate structures in the schema, which differ only in their names.
macro_rules! both_ways {
    ($endpoint:ident, $feature:ident) => {
        impl From<$endpoint<'_>> for Endpoint {
            fn from(record: $endpoint<'_>) -> Self {
                Self {
                    name: record.name.to_owned(),
                    host: record.host.to_owned(),
                    port: record.port,
                    security_protocol: record.security_protocol,
                }
            }
        }

        impl<'r> From<&'r Endpoint> for $endpoint<'r> {
            fn from(endpoint: &'r Endpoint) -> Self {
                Self {
                    name: &endpoint.name,
                    host: &endpoint.host,
                    port: endpoint.port,
                    security_protocol: endpoint.security_protocol,
                }
            }
        }

        impl From<$feature<'_>> for SupportedFeature {
            fn from(record: $feature<'_>) -> Self {
                Self {
                    name: record.name.to_owned(),
                    level_min: record.min_supported_version,
                    level_max: record.max_supported_version,
                }
            }
        }

        impl<'r> From<&'r SupportedFeature> for $feature<'r> {
            fn from(feature: &'r SupportedFeature) -> Self {
                Self {
                    name: &feature.name,
                    min_supported_version: feature.level_min,
                    max_supported_version: feature.level_max,
                }
            }
        }
    };
}

both_ways!(BrokerEndpoint, BrokerFeature);
both_ways!(ControllerEndpoint, ControllerFeature);
