//! The limits on new connections by address (KIP-612).

use std::collections::HashMap;
use std::net::IpAddr;

use klamm_metadata::security::ClientQuotas;

const IP: &str = "ip";
const KEY: &str = "connection_creation_rate";

/// Connections per second by address.
#[derive(Debug, Default, PartialEq)]
pub struct AddressLimits {
    of_address: HashMap<IpAddr, f64>,
    of_others: Option<f64>,
}

/// The addresses of hosts that entities name; `None`: the host has none.
pub type Hosts = HashMap<String, Option<IpAddr>>;

/// The hosts that are named instead of an address.
pub fn named_hosts(quotas: &ClientQuotas) -> impl Iterator<Item = &str> {
    let names = quotas.keys().filter_map(|entity| entity.0.get(IP)?.as_deref());
    names.filter(|name| name.parse::<IpAddr>().is_err())
}

impl AddressLimits {
    /// What is set. A host that is not among `hosts` has no limit yet.
    pub fn of(quotas: &ClientQuotas, hosts: &Hosts) -> Self {
        let mut limits = Self::default();
        for (entity, quotas) in quotas {
            let (Some(named), Some(&per_second)) = (entity.0.get(IP), quotas.get(KEY)) else { continue };
            let Some(name) = named.as_deref() else {
                limits.of_others = Some(per_second);
                continue;
            };
            let address = name.parse().ok().or_else(|| hosts.get(name).copied().flatten());
            if let Some(address) = address.as_ref().map(IpAddr::to_canonical) {
                limits.of_address.insert(address, per_second);
            }
        }
        limits
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn find(&self, address: IpAddr) -> Option<f64> {
        self.of_address.get(&address).copied().or(self.of_others)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use klamm_metadata::MetadataImage;
    use klamm_metadata::records::{ClientQuotaRecord, EntityData, Record};
    use klamm_wire::api::ListenerKind;

    use super::super::Quotas;
    use super::*;

    /// A limit that every connection exceeds.
    fn limiting(name: &str) -> MetadataImage {
        let parts = [EntityData { entity_type: IP, entity_name: Some(name) }];
        let record = ClientQuotaRecord { entity: (&parts[..]).into(), key: KEY, value: 0.01, remove: false };
        let record = Record::ClientQuota(record).encode(0).expect("a record");
        MetadataImage::default().apply([record.as_slice()]).expect("records that fit")
    }

    #[test]
    fn a_host_is_limited_once_it_is_resolved() {
        let quotas = Quotas::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let is_limited = || quotas.connected(ListenerKind::Broker, address) > Duration::ZERO;
        assert_eq!(quotas.apply(&limiting("one")), ["one"]);
        assert!(!is_limited());
        quotas.resolved(Hosts::from([("one".to_owned(), Some(address)), ("two".to_owned(), Some(address))]));
        assert!(is_limited());
        assert_eq!(quotas.apply(&limiting("two")), ["two"], "it was not named when it was resolved");
        assert!(!is_limited());
        assert_eq!(quotas.apply(&limiting("one")), ["one"], "its address may have changed");
        quotas.resolved(Hosts::from([("one".to_owned(), None)]));
        assert!(!is_limited());
        assert!(quotas.apply(&limiting("10.0.0.1")).is_empty());
        assert!(is_limited());
    }
}
