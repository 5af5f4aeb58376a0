//! A client's side of TLS.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::config::ClientConfigError;
use super::super::keys::Values;
use super::error::SecurityError;
use super::identity::Identity;
use super::options::refused;
use super::trust::Trust;
use super::verifier::UnderAnyName;

/// Creates TLS connections.
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
    /// A description of the trusted authorities.
    trust: Arc<str>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Tls(trusting {})", self.trust)
    }
}

impl Tls {
    pub fn new(values: &Values<'_>) -> Result<Self, ClientConfigError> {
        let (identity, versions) = (Identity::new(values)?, versions(values)?);
        let names_count = values.word_of_any_case("ssl.endpoint.identification.algorithm")? == "https";
        let Trust { roots, name: trust } = Trust::new(values)?;
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let verifier = verifier.map_err(|error| refused("ssl.truststore.location", error.to_string()))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| refused("ssl.enabled.protocols", error.to_string()))?;
        let config = match names_count {
            true => config.with_webpki_verifier(verifier),
            false => config.dangerous().with_custom_certificate_verifier(Arc::new(UnderAnyName(verifier))),
        };
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(Identity { chain, key, option }) => config
                .with_client_auth_cert(chain, key)
                .map_err(|error| refused(option, format!("the key and its certificate cannot be used: {error}")))?,
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), trust })
    }

    /// Performs the handshake with the broker at an address, whose certificate must contain the address's host.
    pub async fn agree<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        address: &str,
        socket: S,
    ) -> Result<TlsStream<S>, SecurityError> {
        let host = host_of(address);
        let name = ServerName::try_from(host.to_owned());
        let name =
            name.map_err(|_| SecurityError::Tls(format!("'{host}' is no name that a certificate could have")))?;
        let agreed = self.connector.connect(name, socket).await;
        agreed.map_err(|error| SecurityError::of_handshake(error, host, &self.trust))
    }
}

/// The host of host:port; an IPv6 address without its brackets.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn versions(values: &Values<'_>) -> Result<Vec<&'static SupportedProtocolVersion>, ClientConfigError> {
    let key = "ssl.enabled.protocols";
    let version_of = |name: &str| match name.trim() {
        "TLSv1.3" => Ok(&TLS13),
        "TLSv1.2" => Ok(&TLS12),
        other => Err(refused(key, format!("{other:.40} is not supported: it must be TLSv1.2, TLSv1.3 or both"))),
    };
    values.given(key).unwrap_or("TLSv1.2,TLSv1.3").split(',').map(version_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_what_a_certificate_names() {
        let hosts = ["kafka.example:9093", "[::1]:9093", "10.0.0.1:1"].map(host_of);
        assert_eq!(hosts, ["kafka.example", "::1", "10.0.0.1"]);
    }
}
