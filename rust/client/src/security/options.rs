//! The configuration of TLS and SASL.

use super::super::config::ClientConfigError;
use super::super::keys::Values;
use super::jaas;
use super::secret::Secret;
use super::tls::Tls;

/// How a client and its brokers authenticate each other.
#[derive(Debug)]
pub struct Security {
    /// The value of `security.protocol`.
    pub protocol: &'static str,
    pub(crate) tls: Option<Tls>,
    pub(crate) sasl: Option<Credentials>,
}

impl Default for Security {
    /// Neither TLS nor SASL.
    fn default() -> Self {
        Self { protocol: "PLAINTEXT", tls: None, sasl: None }
    }
}

/// The client's SASL credentials.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: Secret,
    /// The configuration key of the password.
    pub option: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

impl Mechanism {
    const ALL: [Self; 3] = [Self::Plain, Self::ScramSha256, Self::ScramSha512];

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }

    /// The end of its login module's class name, which may be preceded by the package of a shaded client.
    fn login_module(self) -> &'static str {
        match self {
            Self::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
            Self::ScramSha256 | Self::ScramSha512 => "org.apache.kafka.common.security.scram.ScramLoginModule",
        }
    }
}

pub(super) fn refused(key: &'static str, why: impl Into<String>) -> ClientConfigError {
    ClientConfigError::Security { key, why: why.into() }
}

/// The one of several keys that is set, with its value.
pub(super) fn one_of<'v>(
    values: &'v Values<'_>,
    keys: &[&'static str],
) -> Result<Option<(&'static str, &'v str)>, ClientConfigError> {
    let mut found = keys.iter().filter_map(|key| values.given(key).map(|value| (*key, value)));
    let first = found.next();
    match (first, found.next()) {
        (Some((one, _)), Some((other, _))) => {
            Err(refused(one, format!("it says the same as {other}: set one of them")))
        }
        _ => Ok(first),
    }
}

impl Security {
    /// Ignores keys that the protocol does not use, as Apache Kafka's clients do.
    pub(crate) fn new(values: &Values<'_>) -> Result<Self, ClientConfigError> {
        let protocol = values.word_of_any_case("security.protocol")?;
        let tls = protocol.ends_with("SSL").then(|| Tls::new(values)).transpose()?;
        let sasl = protocol.starts_with("SASL").then(|| Credentials::new(values)).transpose()?;
        Ok(Self { protocol, tls, sasl })
    }
}

impl Credentials {
    fn new(values: &Values<'_>) -> Result<Self, ClientConfigError> {
        let mechanism = mechanism(values)?;
        let (user, password, option) = match values.given("sasl.jaas.config") {
            Some(text) => of_jaas(values, text, mechanism)?,
            None => of_keys(values)?,
        };
        for (what, text) in [("name of the user", &user), ("password", &password)] {
            if text.is_empty() || text.contains('\0') || text.len() > TEXT_BYTES_MAX {
                let why = format!("the {what} must have 1 to {TEXT_BYTES_MAX} bytes, none of them NUL");
                return Err(refused(option, why));
            }
        }
        Ok(Self { mechanism, user, password: Secret::new(&password), option })
    }
}

/// A longer name or password is invalid.
const TEXT_BYTES_MAX: usize = 8_192;

fn mechanism(values: &Values<'_>) -> Result<Mechanism, ClientConfigError> {
    let allowed = Mechanism::ALL.map(Mechanism::name).join(", ");
    let Some((key, name)) = one_of(values, &["sasl.mechanism", "sasl.mechanisms"])? else {
        let why =
            format!("it is missing, and Apache Kafka's default, GSSAPI, is not supported: it must be one of {allowed}");
        return Err(refused("sasl.mechanism", why));
    };
    let found = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| refused(key, format!("{name:.40} is not supported: it must be one of {allowed}")))
}

fn of_jaas(
    values: &Values<'_>,
    text: &str,
    mechanism: Mechanism,
) -> Result<(String, String, &'static str), ClientConfigError> {
    let key = "sasl.jaas.config";
    let form = || format!("{} required username=\"...\" password=\"...\";", mechanism.login_module());
    let module = jaas::parse(text).map_err(|error| refused(key, format!("{error}; its form is: {}", form())))?;
    if let Some((other, _)) = one_of(values, &["sasl.username", "sasl.password"]).ok().flatten() {
        return Err(refused(key, format!("it says the same as {other}: set one of them")));
    }
    if !module.class.ends_with(mechanism.login_module()) {
        let why = format!("the login module of {} is another; its form is: {}", mechanism.name(), form());
        return Err(refused(key, why));
    }
    if module.options.get("tokenauth").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(refused(key, "delegation tokens (tokenauth=true) are not supported: say a user and a password"));
    }
    match (module.options.get("username"), module.options.get("password")) {
        (Some(user), Some(password)) => Ok((user.clone(), password.clone(), key)),
        (None, _) => Err(refused(key, format!("it has no username; its form is: {}", form()))),
        (_, None) => Err(refused(key, format!("it has no password; its form is: {}", form()))),
    }
}

fn of_keys(values: &Values<'_>) -> Result<(String, String, &'static str), ClientConfigError> {
    match (values.given("sasl.username"), values.given("sasl.password")) {
        (Some(user), Some(password)) => Ok((user.to_owned(), password.to_owned(), "sasl.password")),
        (None, None) => Err(refused("sasl.jaas.config", "it is missing: set it, or sasl.username and sasl.password")),
        (None, _) => Err(refused("sasl.username", "it is missing beside sasl.password")),
        (_, None) => Err(refused("sasl.password", "it is missing beside sasl.username")),
    }
}
