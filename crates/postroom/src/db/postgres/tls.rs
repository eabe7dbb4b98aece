//! TLS to PostgreSQL: which servers it is asked of.
//!
//! A server on this machine is reached without TLS unless the URL asks for it; any other must offer it
//! unless the URL says `sslmode=disable`.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::db::tls::{TlsSettings, is_loopback};
use crate::error::{Error, ErrorKind};

/// Tells the connection whether to use TLS, and whom to trust.
pub(super) fn apply(
    settings: &TlsSettings,
    config: &mut Config,
) -> Result<MakeRustlsConnect, Error> {
    let mode = mode(settings, config)?;
    config.ssl_mode(mode);
    let mut roots = RootCertStore::empty();
    if mode != SslMode::Disable {
        roots.add_parsable_certificates(settings.certificates()?);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| ErrorKind::Database.with("TLS could not be set up"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(client))
}

/// Whether TLS is asked for.
pub(super) fn mode(settings: &TlsSettings, config: &Config) -> Result<SslMode, Error> {
    Ok(match settings.mode.as_deref() {
        Some("disable") => SslMode::Disable,
        Some("prefer") => SslMode::Prefer,
        Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
        Some(_) => {
            return Err(ErrorKind::InvalidArgument { param: "url" }
                .with("sslmode is disable, prefer, require, verify-ca or verify-full"));
        }
        None if is_local(config) => SslMode::Disable,
        None => SslMode::Require,
    })
}

/// Whether every host is this machine.
fn is_local(config: &Config) -> bool {
    let hosts_are_local = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => is_loopback(name),
        #[cfg(unix)]
        Host::Unix(_) => true,
    });
    hosts_are_local
        && config
            .get_hostaddrs()
            .iter()
            .all(std::net::IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(url: &str) -> SslMode {
        let (settings, url) = TlsSettings::split(url);
        let mut config: Config = url.parse().expect("a URL");
        apply(&settings, &mut config).expect("settings");
        config.get_ssl_mode()
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
