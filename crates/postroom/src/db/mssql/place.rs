//! Where a server is and how it is reached: a `sqlserver://` URL, taken apart.
//!
//! Everything is encrypted and the certificate is checked, unless the URL says otherwise:
//! `encrypt=strict` asks for TLS before the first byte (SQL Server 2022), `encrypt=off` for none;
//! `sslrootcert=FILE` trusts the certificates in a PEM file beside the system's; and
//! `trust_server_certificate=true` takes any certificate, from whomever.

use std::fmt;
use std::time::Duration;

use tiberius::{AuthMethod, Config, EncryptionLevel};

use crate::db::TlsSettings;
use crate::db::url::decoded;
use crate::error::{Error, ErrorKind};

/// A batch that takes longer has lost its server: the connection is given up.
const LONGEST_BATCH: Duration = Duration::from_secs(120);

/// A server, a database on it, and who asks.
#[derive(Clone)]
pub(super) struct Place {
    host: String,
    port: u16,
    database: String,
    user: Option<String>,
    password: Option<String>,
    encryption: EncryptionLevel,
    trust_any: bool,
    tls: TlsSettings,
}

impl Place {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let wrong = |text: &str| ErrorKind::InvalidArgument { param: "url" }.with(text);
        let shape = || wrong("expected `sqlserver://USER:PASSWORD@HOST:PORT/DATABASE`");
        let (tls, url) = TlsSettings::split(url);
        if tls.mode.is_some() {
            return Err(wrong("on SQL Server encryption is asked for by encrypt"));
        }
        let (_, rest) = url.split_once("://").ok_or_else(shape)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && !port.ends_with(']') => {
                (host, port.parse().map_err(|_| shape())?)
            }
            _ => (address, 1433),
        };
        // A password with a slash that is not written as %2F would end up in the name of the database, and be shown.
        if host.is_empty() || database.contains(['@', '/']) {
            return Err(shape());
        }
        let (user, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            Some((user, password)) => (Some(decoded(user)), Some(decoded(password))),
            None => (None, None),
        };
        let mut place = Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            database: decoded(database),
            user,
            password,
            encryption: EncryptionLevel::Required,
            trust_any: false,
            tls,
        };
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match (name, decoded(value).as_str()) {
                ("encrypt", "on") => place.encryption = EncryptionLevel::Required,
                ("encrypt", "strict") => place.encryption = EncryptionLevel::Strict,
                ("encrypt", "off") => place.encryption = EncryptionLevel::NotSupported,
                ("encrypt", _) => return Err(wrong("encrypt is on, strict or off")),
                ("trust_server_certificate", "true") => place.trust_any = true,
                ("trust_server_certificate", "false") => place.trust_any = false,
                ("trust_server_certificate", _) => {
                    return Err(wrong("trust_server_certificate is true or false"));
                }
                _ => {
                    return Err(wrong(
                        "the parameters are encrypt, trust_server_certificate and sslrootcert",
                    ));
                }
            }
        }
        if place.trust_any && place.tls.root_certificates.is_some() {
            return Err(wrong(
                "trust_server_certificate and sslrootcert exclude each other",
            ));
        }
        Ok(place)
    }

    /// Refuses a file of certificates that the client could not read either.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.tls.root_certificates {
            Some(_) => self.tls.certificates().map(drop),
            None => Ok(()),
        }
    }

    pub(super) fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The same server, where it has sent us.
    pub(super) fn moved(&self, host: String, port: u16) -> Self {
        Self {
            host,
            port,
            ..self.clone()
        }
    }

    /// What the client wants to know. A deployment may take as long as it takes.
    pub(super) fn config(&self, patient: bool) -> Config {
        let mut config = Config::new();
        config.host(&self.host);
        config.port(self.port);
        if !self.database.is_empty() {
            config.database(&self.database);
        }
        if let (Some(user), Some(password)) = (&self.user, &self.password) {
            config.authentication(AuthMethod::sql_server(user, password));
        }
        config.encryption(self.encryption);
        if self.trust_any {
            config.trust_cert();
        } else if let Some(path) = &self.tls.root_certificates {
            config.trust_cert_ca(path);
        }
        config.application_name("postroom");
        config.command_timeout((!patient).then_some(LONGEST_BATCH));
        config
    }
}

/// Host, port and database, as in a URL: no user and no password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sqlserver://{}:{}/{}",
            self.host, self.port, self.database
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Place {
        Place::parse(url).expect(url)
    }

    #[test]
    fn a_url_is_taken_apart() {
        let place = place("sqlserver://sa:p%40ss%3A%2F@db.example:1434/shop");
        assert_eq!(place.address(), ("db.example", 1434));
        assert_eq!(place.user.as_deref(), Some("sa"));
        assert_eq!(place.password.as_deref(), Some("p@ss:/"));
        assert_eq!(place.to_string(), "sqlserver://db.example:1434/shop");
    }

    #[test]
    fn encryption_and_a_checked_certificate_are_the_default_everywhere() {
        for url in [
            "mssql://localhost/a",
            "sqlserver://127.0.0.1",
            "sqlserver://db.example/a",
        ] {
            let place = place(url);
            assert_eq!(place.encryption, EncryptionLevel::Required, "{url}");
            assert!(!place.trust_any, "{url}");
            assert_eq!(place.port, 1433, "{url}");
        }
        let trusting = place("sqlserver://localhost/a?trust_server_certificate=true");
        assert!(trusting.trust_any);
        assert_eq!(trusting.encryption, EncryptionLevel::Required);
    }

    #[test]
    fn what_cannot_be_right_is_refused_without_being_quoted() {
        for url in [
            "sqlserver:",
            "sqlserver://",
            "sqlserver://u:secret@/a",
            "sqlserver://u:12/secret@h/a",
            "sqlserver://u:secret@h:port/a",
            "sqlserver://u:secret@h/a?encrypt=maybe",
            "sqlserver://u:secret@h/a?trust_server_certificate=1",
            "sqlserver://u:secret@h/a?sslmode=disable",
            "sqlserver://u:secret@h/a?trust_server_certificate=true&sslrootcert=a.pem",
        ] {
            let error = Place::parse(url).err().expect(url);
            assert_eq!(error.param(), Some("url"), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
