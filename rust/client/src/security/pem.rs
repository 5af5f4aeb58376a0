//! PEM as Apache Kafka parses it from files and options: text around the sections is ignored, and lines may be joined
//! by spaces (KIP-651).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The content between BEGIN and END.
#[derive(Clone, PartialEq, Eq)]
pub struct Section {
    /// As in "PRIVATE KEY".
    pub label: String,
    pub der: Vec<u8>,
}

/// Why a text is not valid PEM. The error never repeats the text, which may be a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    #[error("it has no section that begins with -----BEGIN")]
    Empty,
    #[error("its section {0} has no -----END")]
    Unended(usize),
    #[error("its section {0} is encrypted")]
    Encrypted(usize),
    #[error("its section {0} is not base64")]
    NotBase64(usize),
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// The sections of a text, at least one.
pub fn sections(text: &str) -> Result<Vec<Section>, PemError> {
    let mut sections = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let number = sections.len() + 1;
        let (label, body) = rest[at + BEGIN.len()..].split_once(DASHES).ok_or(PemError::Unended(number))?;
        let (body, after) = body.split_once(END).ok_or(PemError::Unended(number))?;
        // Before PKCS#8, an encrypted key has headers ("DEK-Info: ..."), which are not base64.
        if label.contains("ENCRYPTED") || body.contains(':') {
            return Err(PemError::Encrypted(number));
        }
        let body: String = body.split_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| PemError::NotBase64(number))?;
        sections.push(Section { label: label.trim().to_owned(), der });
        rest = after;
    }
    if sections.is_empty() { Err(PemError::Empty) } else { Ok(sections) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_joined_by_blanks_and_text_around_are_read() {
        let text = "Bag Attributes\n-----BEGIN CERTIFICATE-----\nAAEC\nAwQF\n-----END CERTIFICATE-----\nsubject=me\n\
                    -----BEGIN PRIVATE KEY----- BgcI -----END PRIVATE KEY-----";
        let found = sections(text).expect("two sections");
        let parsed: Vec<_> = found.iter().map(|section| (section.label.as_str(), section.der.as_slice())).collect();
        assert_eq!(parsed, [("CERTIFICATE", &[0, 1, 2, 3, 4, 5][..]), ("PRIVATE KEY", &[6, 7, 8][..])]);
    }

    #[test]
    fn errors_do_not_contain_the_text() {
        assert_eq!(sections("open-sesame").err(), Some(PemError::Empty));
        assert_eq!(sections("-----BEGIN X-----AAEC").err(), Some(PemError::Unended(1)));
        assert_eq!(sections("-----BEGIN X-----AA*C-----END X-----").err(), Some(PemError::NotBase64(1)));
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----AAEC-----END ENCRYPTED PRIVATE KEY-----";
        assert_eq!(sections(encrypted).err(), Some(PemError::Encrypted(1)));
        let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAEC\n-----END RSA PRIVATE KEY-----";
        assert_eq!(sections(old).err(), Some(PemError::Encrypted(1)));
    }

    proptest! {
        #[test]
        fn pem_round_trips(ders in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..4)) {
            let text: String = ders
                .iter()
                .map(|der| format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der)))
                .collect();
            let found: Vec<_> = sections(&text).expect("sections").into_iter().map(|section| section.der).collect();
            prop_assert_eq!(found, ders);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,80}(-----BEGIN A-----)?.{0,80}(-----END A-----)?.{0,20}") {
            let _ = sections(&text);
        }
    }
}
