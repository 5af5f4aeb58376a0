//! The authorities whose signatures on a broker's certificate are trusted.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use super::super::config::ClientConfigError;
use super::super::keys::Values;
use super::options::{one_of, refused};
use super::pem::{self, Section};

/// Trusted authorities, and their description for messages.
pub struct Trust {
    pub roots: RootCertStore,
    pub name: Arc<str>,
}

const TEXTS: [&str; 2] = ["ssl.truststore.certificates", "ssl.ca.pem"];
const FILES: [&str; 2] = ["ssl.truststore.location", "ssl.ca.location"];

impl Trust {
    pub fn new(values: &Values<'_>) -> Result<Self, ClientConfigError> {
        check_type(values, "ssl.truststore.type", "ssl.truststore.password", TO_PEM)?;
        match one_of(values, &[TEXTS, FILES].concat())? {
            None => Self::of_machine(),
            Some((key, text)) if TEXTS.contains(&key) => Self::of_text(key, key.to_owned(), text),
            Some((key, path)) => Self::of_text(key, format!("{key}={path}"), &read(key, path, TO_PEM)?),
        }
    }

    fn of_text(key: &'static str, name: String, text: &str) -> Result<Self, ClientConfigError> {
        let mut roots = RootCertStore::empty();
        for (at, der) in certificates(key, text)?.into_iter().enumerate() {
            roots.add(der).map_err(|error| refused(key, format!("certificate {} is refused: {error}", at + 1)))?;
        }
        Ok(Self { roots, name: format!("the authorities of {name}").into() })
    }

    fn of_machine() -> Result<Self, ClientConfigError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let why =
                "it is not set, and this machine trusts no authorities itself: set it, or install ca-certificates";
            return Err(refused(FILES[0], why));
        }
        Ok(Self { roots, name: "the authorities that this machine trusts (ssl.truststore.location is not set)".into() })
    }
}

/// The certificates in the sections of a PEM text, at least one.
pub fn certificates(key: &'static str, text: &str) -> Result<Vec<CertificateDer<'static>>, ClientConfigError> {
    let of_certificate = |section: Section| (section.label == "CERTIFICATE").then(|| section.der.into());
    let sections = pem::sections(text).map_err(|error| refused(key, format!("its PEM cannot be read: {error}")))?;
    let found: Vec<_> = sections.into_iter().filter_map(of_certificate).collect();
    if found.is_empty() { Err(refused(key, "its PEM has no section CERTIFICATE")) } else { Ok(found) }
}

/// For a Java key store, with the passwords that the tool asks for.
pub const TO_PEM: &str = "keytool -list -rfc -keystore STORE > truststore.pem";

/// The text of a PEM file.
pub fn read(key: &'static str, path: &str, to_pem: &str) -> Result<String, ClientConfigError> {
    let bytes = std::fs::read(path).map_err(|error| {
        refused(key, format!("{path} cannot be read: {error}. The file must be on every machine that connects"))
    })?;
    let kind = match bytes.as_slice() {
        [0xfe, 0xed, 0xfe, 0xed, ..] => "a JKS store",
        [0x30, 0x80..=0x84, ..] => "a PKCS12 store or DER",
        _ => {
            let not_text = |_| refused(key, format!("{path} is no PEM: {}", advice(to_pem)));
            return String::from_utf8(bytes).map_err(not_text);
        }
    };
    Err(refused(key, format!("{path} is {kind}, and only PEM is read: {}", advice(to_pem))))
}

/// Rejects stores that are not PEM, and passwords, which PEM does not have.
pub fn check_type(
    values: &Values<'_>,
    kind: &'static str,
    password: &'static str,
    to_pem: &str,
) -> Result<(), ClientConfigError> {
    if let Some(found) = values.given(kind).filter(|found| !found.eq_ignore_ascii_case("PEM")) {
        return Err(refused(kind, format!("{found:.40} stores are not read, only PEM: {}", advice(to_pem))));
    }
    if values.given(password).is_some() {
        return Err(refused(password, format!("a PEM store has no password; of another kind, {}", advice(to_pem))));
    }
    Ok(())
}

fn advice(to_pem: &str) -> String {
    format!("convert it by `{to_pem}`, name the new file, set the store's type to PEM and leave its password away")
}
