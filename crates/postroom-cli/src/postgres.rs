//! A connection to PostgreSQL beside the library's, under the same rules: a server on another machine has
//! to offer TLS, and certificates are always verified, unless the URL says `sslmode=disable`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Connects. No error holds the URL.
pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (mut config, tls) = read(url)?;
    let tls = tls.apply(&mut config)?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(10));
    }
    config.application_name("postroom");
    let (client, connection) = config
        .connect(tls)
        .await
        .context("the database cannot be reached")?;
    // Whoever waits for an answer gets the error; nobody else needs it.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

/// What a URL says of TLS.
#[derive(Default)]
struct Tls {
    mode: Option<String>,
    root_certificates: Option<String>,
}

/// The client does not know all values of `sslmode`, and nothing of `sslrootcert`.
fn read(url: &str) -> anyhow::Result<(Config, Tls)> {
    let mut tls = Tls::default();
    let (start, query) = url.split_once('?').unwrap_or((url, ""));
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        // As it is written in a query, so that it may have `%2F` in it.
        match reqwest::Url::parse(&format!("q:?{pair}"))
            .ok()
            .and_then(|url| url.query_pairs().next().map(|pair| pair.1.into_owned()))
        {
            Some(value) if pair.starts_with("sslmode=") => tls.mode = Some(value),
            Some(value) if pair.starts_with("sslrootcert=") => tls.root_certificates = Some(value),
            _ => rest.push(pair),
        }
    }
    let url = if rest.is_empty() {
        start.to_owned()
    } else {
        format!("{start}?{}", rest.join("&"))
    };
    // What the parser says quotes the URL.
    match url.parse() {
        Ok(config) => Ok((config, tls)),
        Err(_) => bail!("the URL is not understood; expected postgres://USER@HOST/DATABASE"),
    }
}

impl Tls {
    fn apply(&self, config: &mut Config) -> anyhow::Result<MakeRustlsConnect> {
        let mode = match self.mode.as_deref() {
            Some("disable") => SslMode::Disable,
            Some("prefer") => SslMode::Prefer,
            Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            Some(_) => bail!("sslmode is disable, prefer, require, verify-ca or verify-full"),
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
            .context("TLS could not be set up")?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(MakeRustlsConnect::new(client))
    }

    /// The certificates in `sslrootcert`, or those that the system trusts.
    fn roots(&self) -> anyhow::Result<RootCertStore> {
        const UNREADABLE: &str = "sslrootcert names no readable PEM file with certificates";
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.root_certificates else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return Ok(roots);
        };
        for certificate in CertificateDer::pem_file_iter(path).context(UNREADABLE)? {
            roots
                .add(certificate.context(UNREADABLE)?)
                .context(UNREADABLE)?;
        }
        if roots.is_empty() {
            bail!(UNREADABLE);
        }
        Ok(roots)
    }
}

/// Whether every host is this machine.
fn is_local(config: &Config) -> bool {
    let local = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    });
    local
        && config
            .get_hostaddrs()
            .iter()
            .all(std::net::IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> SslMode {
        let (mut config, tls) = read(url).expect("a URL");
        tls.apply(&mut config).expect("settings");
        config.get_ssl_mode()
    }

    /// Shows X12.
    #[test]
    fn other_machines_need_tls_unless_the_url_says_otherwise() {
        assert_eq!(mode("postgres://127.0.0.1/d"), SslMode::Disable);
        assert_eq!(mode("postgres://localhost/d"), SslMode::Disable);
        assert_eq!(mode("postgres://db.example/d"), SslMode::Require);
        assert_eq!(mode("postgres://localhost,db.example/d"), SslMode::Require);
        assert_eq!(
            mode("postgres://db.example/d?sslmode=disable"),
            SslMode::Disable
        );
        assert_eq!(
            mode("postgres://localhost/d?connect_timeout=3&sslmode=verify-full"),
            SslMode::Require
        );
    }

    #[test]
    fn a_wrong_url_is_not_quoted() {
        let error = read("postgres://u:secret@h:port/d")
            .err()
            .expect("an error");
        assert!(!format!("{error:#}").contains("secret"));
    }
}
