//! The steps that are the same for every request, whether the engine answers it or Python: authentication, authorization,
//! quotas and metrics, a file each. A connection takes a request through them (`connection.rs`).

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
pub use quotas::{Quotas, Usage};
pub use request_metrics::{Measured, RequestDistribution, RequestMetrics};
pub use topics::{Topics, id_with_partition};

/// What a server has for the steps.
#[derive(Default)]
pub struct Pipeline {
    pub authorizer: Authorizer,
    pub quotas: Quotas,
    pub metrics: RequestMetrics,
}
