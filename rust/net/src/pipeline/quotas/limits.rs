//! The limits that an image sets, and which of them applies to a client.

use std::collections::HashMap;

use klamm_metadata::security::{ClientQuotas, QuotaEntity};

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";

/// The limits of one quota for users and client ids.
#[derive(Debug, Default, PartialEq)]
pub struct QuotaLimits {
    of_user: HashMap<String, ClientLimits>,
    of_default_user: ClientLimits,
    of_any_user: ClientLimits,
}

/// The limits of client ids for one user entity, or without a user.
#[derive(Debug, Default, PartialEq)]
struct ClientLimits {
    of_client: HashMap<String, f64>,
    of_default_client: Option<f64>,
    of_all: Option<f64>,
}

/// A limit, and the part of the client's identity whose requests are counted together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found<'a> {
    pub per_second: f64,
    /// Empty: all users together.
    pub user: &'a str,
    /// Empty: all client ids together.
    pub client_id: &'a str,
}

impl QuotaLimits {
    /// What is set under `key`.
    pub fn of(quotas: &ClientQuotas, key: &str) -> Self {
        let mut limits = Self::default();
        for (entity, quotas) in quotas {
            if let Some(&per_second) = quotas.get(key) {
                limits.set(entity, per_second);
            }
        }
        limits
    }

    fn set(&mut self, QuotaEntity(parts): &QuotaEntity, per_second: f64) {
        let of_user = match parts.get(USER) {
            Some(Some(user)) => self.of_user.entry(user.clone()).or_default(),
            Some(None) => &mut self.of_default_user,
            None => &mut self.of_any_user,
        };
        match parts.get(CLIENT_ID) {
            Some(Some(client_id)) => drop(of_user.of_client.insert(client_id.clone(), per_second)),
            Some(None) => of_user.of_default_client = Some(per_second),
            None => of_user.of_all = Some(per_second),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The most specific limit for a client, in Apache Kafka's order (KIP-55): of its user, of the default user, of
    /// its client id; of a user with the client id first.
    pub fn find<'a>(&self, user: &'a str, client_id: &'a str) -> Option<Found<'a>> {
        let of_users = self.of_user.get(user).into_iter().chain([&self.of_default_user]);
        let of_user = |limits: &ClientLimits| {
            let with_client = limits.of_client(client_id).map(|per_second| Found { per_second, user, client_id });
            with_client.or_else(|| limits.of_all.map(|per_second| Found { per_second, user, client_id: "" }))
        };
        of_users.into_iter().find_map(of_user).or_else(|| {
            self.of_any_user.of_client(client_id).map(|per_second| Found { per_second, user: "", client_id })
        })
    }
}

impl ClientLimits {
    /// A client without an id has no limit of the default one.
    fn of_client(&self, client_id: &str) -> Option<f64> {
        let default = self.of_default_client.filter(|_| !client_id.is_empty());
        self.of_client.get(client_id).copied().or(default)
    }
}

#[cfg(test)]
mod tests {
    use klamm_metadata::MetadataImage;
    use klamm_metadata::records::{ClientQuotaRecord, EntityData, Record};

    use super::*;

    /// Each entity has its index in the list as its limit; `*` is the default entity, `-` none.
    fn limits(entities: &[(&str, &str)]) -> QuotaLimits {
        let record = |at: usize, (user, client_id): (&str, &str)| {
            let named = [(USER, user), (CLIENT_ID, client_id)].into_iter().filter(|(_, name)| *name != "-");
            let parts: Vec<_> = named
                .map(|(entity_type, name)| EntityData { entity_type, entity_name: (name != "*").then_some(name) })
                .collect();
            let (entity, value) = ((&parts[..]).into(), at as f64);
            Record::ClientQuota(ClientQuotaRecord { entity, key: "a_rate", value, remove: false })
                .encode(0)
                .expect("a record")
        };
        let records: Vec<_> = entities.iter().enumerate().map(|(at, &entity)| record(at, entity)).collect();
        let image = MetadataImage::default().apply(records.iter().map(Vec::as_slice)).expect("records that fit");
        assert!(QuotaLimits::of(image.quotas(), "another_rate").is_empty());
        QuotaLimits::of(image.quotas(), "a_rate")
    }

    #[test]
    fn the_most_specific_limit_applies() {
        // From the most specific to the least.
        let entities = [("u", "c"), ("u", "*"), ("u", "-"), ("*", "c"), ("*", "*"), ("*", "-"), ("-", "c"), ("-", "*")];
        for first in 0..entities.len() {
            let rest = limits(&entities[first..]);
            assert!(!rest.is_empty());
            let (user, client_id) = entities[first];
            let found = rest.find("u", "c").expect("a limit");
            assert_eq!(found.per_second, 0.0, "{user} {client_id}");
            assert_eq!(found.user, if user == "-" { "" } else { "u" });
            assert_eq!(found.client_id, if client_id == "-" { "" } else { "c" });
        }
        assert!(limits(&[]).is_empty() && limits(&[]).find("u", "c").is_none());
    }

    #[test]
    fn others_have_no_limit() {
        let named = limits(&[("u", "c")]);
        assert!(named.find("u", "d").is_none() && named.find("v", "c").is_none());
        let without_id = limits(&[("u", "*"), ("*", "*"), ("-", "*")]);
        assert!(without_id.find("u", "").is_none());
        assert_eq!(limits(&[("u", "*"), ("*", "-")]).find("u", "").map(|found| found.per_second), Some(1.0));
    }
}
