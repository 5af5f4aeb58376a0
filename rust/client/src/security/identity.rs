//! The client's certificate and private key for brokers that request them (mTLS).

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::super::config::ClientConfigError;
use super::super::keys::Values;
use super::options::{one_of, refused};
use super::pem::{self, PemError};
use super::trust::{certificates, check_type, read};

/// Its own certificate comes first.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    /// The configuration key of the private key.
    pub option: &'static str,
}

const CHAINS: [&str; 4] =
    ["ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.certificate.location", "ssl.certificate.pem"];
const KEYS: [&str; 4] = ["ssl.keystore.location", "ssl.keystore.key", "ssl.key.location", "ssl.key.pem"];
const TO_PEM: &str = "openssl pkcs12 -in STORE -nodes -out keystore.pem` (of a JKS store, first `keytool \
                      -importkeystore -srckeystore JKS -destkeystore STORE -deststoretype PKCS12";

impl Identity {
    /// `None` if no key is set: most brokers request none.
    pub fn new(values: &Values<'_>) -> Result<Option<Self>, ClientConfigError> {
        check_type(values, "ssl.keystore.type", "ssl.keystore.password", TO_PEM)?;
        let (chain, key) = match (one_of(values, &CHAINS)?, one_of(values, &KEYS)?) {
            (None, None) if values.given("ssl.key.password").is_some() => {
                return Err(refused("ssl.key.password", format!("there is no key, {OF_ENCRYPTED}")));
            }
            (None, None) => return Ok(None),
            (Some((chain, _)), None) => {
                return Err(refused(chain, "there is no private key beside it: set ssl.keystore.key"));
            }
            (None, Some((key, _))) => {
                return Err(refused(key, "there is no certificate beside it: set ssl.keystore.certificate.chain"));
            }
            (Some(chain), Some(key)) => (chain, key),
        };
        let key_text = text_of(key)?;
        let private = private_key(key.0, &key_text)?;
        if values.given("ssl.key.password").is_some() {
            return Err(refused("ssl.key.password", format!("the key is not encrypted, {OF_ENCRYPTED}")));
        }
        let chain = certificates(chain.0, &text_of(chain)?)?;
        Ok(Some(Self { chain, key: private, option: key.0 }))
    }
}

fn text_of((key, value): (&'static str, &str)) -> Result<String, ClientConfigError> {
    if key.ends_with(".location") { read(key, value, TO_PEM) } else { Ok(value.to_owned()) }
}

const OF_ENCRYPTED: &str = "and encrypted ones are not read: leave ssl.key.password away, and decrypt an encrypted key by \
                            `openssl pkcs8 -in KEY -out key.pem` into a file that only the job may read";

fn private_key(option: &'static str, text: &str) -> Result<PrivateKeyDer<'static>, ClientConfigError> {
    let sections = pem::sections(text).map_err(|error| match error {
        PemError::Encrypted(_) => refused(option, format!("its private key is encrypted, {OF_ENCRYPTED}")),
        other => refused(option, format!("its PEM cannot be read: {other}")),
    })?;
    let mut keys = sections.into_iter().filter_map(|section| match section.label.as_str() {
        "PRIVATE KEY" => Some(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(section.der))),
        "RSA PRIVATE KEY" => Some(PrivateKeyDer::Pkcs1(section.der.into())),
        "EC PRIVATE KEY" => Some(PrivateKeyDer::Sec1(section.der.into())),
        _ => None,
    });
    keys.next().ok_or_else(|| refused(option, "its PEM has no section PRIVATE KEY"))
}
