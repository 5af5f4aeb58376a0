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

impl AddressLimits {
    /// What is set. An entity that is named by a host instead of an address has no effect.
    pub fn of(quotas: &ClientQuotas) -> Self {
        let mut limits = Self::default();
        for (entity, quotas) in quotas {
            let (Some(named), Some(&per_second)) = (entity.0.get(IP), quotas.get(KEY)) else { continue };
            match named.as_deref().map(str::parse::<IpAddr>) {
                None => limits.of_others = Some(per_second),
                Some(Ok(address)) => drop(limits.of_address.insert(address.to_canonical(), per_second)),
                Some(Err(_)) => {}
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
