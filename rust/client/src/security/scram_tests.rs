//! SCRAM with the test vectors of its RFCs, against a server with a broker's stored data, and against malicious
//! servers.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::scram::{Hash, ITERATIONS_MAX, ITERATIONS_MIN, Scram, ScramError};
use super::secret::Secret;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

struct Vector {
    hash: Hash,
    nonce: &'static str,
    server_first: &'static str,
    client_last: &'static str,
    server_last: &'static str,
}

#[test]
fn the_vectors_of_the_rfcs() {
    let rfc_5802 = Vector {
        hash: Hash::sha_1(),
        nonce: "fyko+d2lbbFgONRv9qkxdawL",
        server_first: "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        client_last: "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        server_last: "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    };
    let rfc_7677 = Vector {
        hash: Hash::sha_256(),
        nonce: "rOprNGfwEbeRWgbNEkqO",
        server_first: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        client_last: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        server_last: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    };
    for vector in [rfc_5802, rfc_7677] {
        let client = Scram::new(vector.hash, "user", Secret::new("pencil"), vector.nonce.to_owned());
        assert_eq!(text(&client.first()), format!("n,,n=user,r={}", vector.nonce));
        let (last, proven) = client.prove(vector.server_first.as_bytes()).expect("a proof");
        assert_eq!(text(&last), vector.client_last);
        assert_eq!(proven.check(vector.server_last.as_bytes()), Ok(()));
    }
}

/// A server like a broker: it has salt, iterations, StoredKey and ServerKey, but not the password.
struct Server {
    hash: Hash,
    salt: Vec<u8>,
    iterations: NonZeroU32,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

impl Server {
    fn new(hash: Hash, password: &str, salt: &[u8], iterations: u32) -> Self {
        let iterations = NonZeroU32::new(iterations).expect("some iterations");
        let salted = hash.salted(password, salt, iterations);
        let stored_key = hash.of(&hash.signed(&salted, b"Client Key"));
        Self { hash, salt: salt.to_vec(), iterations, stored_key, server_key: hash.signed(&salted, b"Server Key") }
    }

    fn first(&self, client_first: &str) -> String {
        let nonce = client_first.rsplit_once("r=").expect("a nonce").1;
        format!("r={nonce}server,s={},i={}", STANDARD.encode(&self.salt), self.iterations)
    }

    /// The server's last message, if the proof is valid.
    fn last(&self, client_first: &str, server_first: &str, client_last: &str) -> Option<String> {
        let (without_proof, proof) = client_last.rsplit_once(",p=")?;
        let message = format!("{},{server_first},{without_proof}", client_first.strip_prefix("n,,")?);
        let signature = self.hash.signed(&self.stored_key, message.as_bytes());
        let proof = STANDARD.decode(proof).ok()?;
        let key: Vec<u8> = proof.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
        let is_right = self.hash.of(&key) == self.stored_key;
        is_right.then(|| format!("v={}", STANDARD.encode(self.hash.signed(&self.server_key, message.as_bytes()))))
    }
}

fn client(password: &str) -> Scram {
    Scram::new(Hash::sha_512(), "me", Secret::new(password), "abc".to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn both_sides_agree_with_the_password(
        is_512: bool, user in "\\PC{1,12}", password in "\\PC{1,20}", salt in prop::collection::vec(any::<u8>(), 1..40)
    ) {
        let hash = if is_512 { Hash::sha_512() } else { Hash::sha_256() };
        let server = Server::new(hash, &password, &salt, ITERATIONS_MIN);
        let client = Scram::new(hash, &user, Secret::new(&password), "nonce".to_owned());
        let first = client.first();
        prop_assert_eq!(text(&first).matches(',').count(), 3, "a comma in a name would be read as another field");
        let asked = server.first(text(&first));
        let (proof, proven) = client.prove(asked.as_bytes()).expect("a proof");
        let last = server.last(text(&first), &asked, text(&proof)).expect("the proof is right");
        prop_assert_eq!(proven.check(last.as_bytes()), Ok(()));
        prop_assert!(proven.check(&last.as_bytes()[..last.len() - 5]).is_err());
    }

    #[test]
    fn any_message_is_accepted_or_rejected(message in prop::collection::vec(any::<u8>(), 0..80), tail in "[ -~]{0,40}") {
        prop_assert!(client("x").prove(&message).is_err());
        let asked = format!("r=abc{tail}");
        prop_assert!(client("x").prove(asked.as_bytes()).is_err());
        let (_, proven) = client("x").prove(b"r=abcd,s=AAEC,i=4096").expect("a proof");
        prop_assert!(proven.check(&message).is_err());
    }
}

#[test]
fn another_password_proves_nothing() {
    let server = Server::new(Hash::sha_512(), "right", b"salt", ITERATIONS_MIN);
    let client = client("wrong");
    let first = client.first();
    let asked = server.first(text(&first));
    let (proof, _) = client.prove(asked.as_bytes()).expect("a proof");
    assert_eq!(server.last(text(&first), &asked, text(&proof)), None);
}

#[test]
fn a_server_without_the_credentials_is_rejected() {
    for (message, expected) in [
        ("r=abcd,s=,i=4096", ScramError::Salt),
        ("r=abcd,s=AAEC,i=1", ScramError::Iterations(1)),
        ("r=abcd,s=AAEC,i=0", ScramError::Iterations(0)),
        ("r=abcd,s=AAEC,i=2147483647", ScramError::Iterations(2_147_483_647)),
        ("r=abcd,s=AAEC,i=18446744073709551615", ScramError::Iterations(u64::MAX)),
        ("r=abcd,s=AAEC,i=18446744073709551616", ScramError::Malformed("with salt and nonce")),
        ("r=abcd,s=AAEC,i=-4096", ScramError::Malformed("with salt and nonce")),
        ("r=abc,s=AAEC,i=4096", ScramError::Nonce),
        ("r=xyzabc,s=AAEC,i=4096", ScramError::Nonce),
        ("m=x,r=abcd,s=AAEC,i=4096", ScramError::Extension),
        ("s=AAEC,r=abcd,i=4096", ScramError::Malformed("with salt and nonce")),
    ] {
        assert_eq!(client("x").prove(message.as_bytes()).map(drop), Err(expected), "{message}");
    }
    assert_eq!(ITERATIONS_MAX + 1, 1_000_001, "a second's work, and no more");
    let long = format!("r=abcd,s={},i=4096", "A".repeat(20_000));
    assert!(client("x").prove(long.as_bytes()).is_err());
    let (_, proven) = client("x").prove(b"r=abcd,s=AAEC,i=4096").expect("a proof");
    assert_eq!(proven.check(b"v=AAEC"), Err(ScramError::Signature));
    assert_eq!(proven.check(b"v="), Err(ScramError::Signature));
    assert_eq!(proven.check(b"e=other-error\n"), Err(ScramError::Said("other-error".to_owned())));
}

#[test]
fn nothing_shows_the_password() {
    let shown = format!("{:?}", client("open-sesame"));
    assert!(!shown.contains("sesame"), "{shown}");
}
