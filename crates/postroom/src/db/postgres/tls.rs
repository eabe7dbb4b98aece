//! TLS to PostgreSQL: which servers it is asked of, and who is trusted.
//!
//! Certificates are always verified, the host name too. A server on this machine is reached without
//! TLS unless the URL asks for it; any other must offer it unless the URL says `sslmode=disable`.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{Error, ErrorKind};

/// What a URL says of TLS: `sslmode` and `sslrootcert`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    mode: Option<String>,
    root_certificates: Option<String>,
}

impl TlsSettings {
    /// Takes the settings out of a URL, which is given back without them.
    pub(crate) fn split(url: &str) -> (Self, String) {
        let mut settings = Self::default();
        let Some((start, query)) = url.split_once('?') else {
            return (settings, url.to_owned());
        };
        let mut rest = Vec::new();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("sslmode", mode)) => settings.mode = Some(decoded(mode)),
                Some(("sslrootcert", path)) => settings.root_certificates = Some(decoded(path)),
                _ => rest.push(pair),
            }
        }
        let url = if rest.is_empty() {
            start.to_owned()
        } else {
            format!("{start}?{}", rest.join("&"))
        };
        (settings, url)
    }

    /// Tells the connection whether to use TLS, and whom to trust.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<MakeRustlsConnect, Error> {
        let mode = match self.mode.as_deref() {
            Some("disable") => SslMode::Disable,
            Some("prefer") => SslMode::Prefer,
            Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            Some(_) => {
                return Err(ErrorKind::InvalidArgument { param: "url" }
                    .with("sslmode is disable, prefer, require, verify-ca or verify-full"));
            }
            None if is_local(config) => SslMode::Disable,
            None => SslMode::Require,
        };
        config.ssl_mode(mode);
        let roots = if mode == SslMode::Disable {
            RootCertStore::empty()
        } else {
            self.roots()?
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| ErrorKind::Database.with("TLS could not be set up"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(MakeRustlsConnect::new(client))
    }

    /// The certificates in `sslrootcert`, or those that the system trusts.
    fn roots(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        let unreadable = || {
            ErrorKind::InvalidArgument { param: "url" }
                .with("sslrootcert names no readable PEM file with certificates")
        };
        match &self.root_certificates {
            Some(path) => {
                let certificates = CertificateDer::pem_file_iter(path).map_err(|_| unreadable())?;
                for certificate in certificates {
                    roots
                        .add(certificate.map_err(|_| unreadable())?)
                        .map_err(|_| unreadable())?;
                }
                if roots.is_empty() {
                    return Err(unreadable());
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        Ok(roots)
    }
}

/// Whether every host is this machine.
fn is_local(config: &Config) -> bool {
    let hosts_are_local = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    });
    hosts_are_local
        && config
            .get_hostaddrs()
            .iter()
            .all(std::net::IpAddr::is_loopback)
}

/// Undoes `%2F` and its like; what is no such thing stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(url: &str) -> SslMode {
        let (settings, url) = TlsSettings::split(url);
        let mut config: Config = url.parse().expect("a URL");
        settings.apply(&mut config).expect("settings");
        config.get_ssl_mode()
    }

    #[test]
    fn settings_are_taken_out_of_the_url() {
        let (settings, url) = TlsSettings::split(
            "postgres://h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Ftmp%2Fca.pem",
        );
        assert_eq!(url, "postgres://h/d?connect_timeout=3");
        assert_eq!(settings.mode.as_deref(), Some("verify-full"));
        assert_eq!(settings.root_certificates.as_deref(), Some("/tmp/ca.pem"));
    }

    #[test]
    fn other_hosts_need_tls_unless_the_url_says_otherwise() {
        assert_eq!(mode_of("postgres://127.0.0.1/d"), SslMode::Disable);
        assert_eq!(mode_of("postgres://localhost/d"), SslMode::Disable);
        assert_eq!(mode_of("postgres://db.example/d"), SslMode::Require);
        assert_eq!(
            mode_of("postgres://localhost,db.example/d"),
            SslMode::Require
        );
        assert_eq!(
            mode_of("postgres://db.example/d?sslmode=disable"),
            SslMode::Disable
        );
        assert_eq!(
            mode_of("postgres://localhost/d?sslmode=verify-full"),
            SslMode::Require
        );
    }
}
