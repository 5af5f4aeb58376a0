//! The steps that apply to every request, whether the engine or Python answers it: authentication, authorization,
//! quotas and metrics, one file each. A connection takes a request through them (`connection.rs`).

pub mod authentication;
pub mod authorization;
mod context;
mod histogram;
mod principal;
mod quotas;
mod request_metrics;
mod topics;

pub use authorization::Authorizer;
pub use context::RequestContext;
pub use histogram::Distribution;
pub use principal::Principal;
pub use quotas::{QuotaClient, Quotas};
pub use request_metrics::{Measured, RequestDistribution, RequestMetrics};
pub use topics::{Topics, id_with_partition};

/// The state of the steps for a server.
#[derive(Default)]
pub struct Pipeline {
    pub authorizer: Authorizer,
    pub quotas: Quotas,
    pub metrics: RequestMetrics,
}
