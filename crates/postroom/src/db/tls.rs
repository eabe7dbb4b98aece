//! What a URL says of TLS, and who is trusted. Certificates are always verified, the host name too.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::db::url::decoded;
use crate::error::{Error, ErrorKind};

/// `sslmode` and `sslrootcert`, or as MySQL calls them `ssl-mode` and `ssl-ca`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(super) mode: Option<String>,
    pub(super) root_certificates: Option<String>,
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
                Some(("sslmode" | "ssl-mode", mode)) => settings.mode = Some(decoded(mode)),
                Some(("sslrootcert" | "ssl-ca", path)) => {
                    settings.root_certificates = Some(decoded(path));
                }
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

    /// The certificates in `sslrootcert`, or those that the system trusts.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let unreadable = || {
            ErrorKind::InvalidArgument { param: "url" }
                .with("sslrootcert names no readable PEM file with certificates")
        };
        let Some(path) = &self.root_certificates else {
            return Ok(rustls_native_certs::load_native_certs().certs);
        };
        let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|_| unreadable())?;
        if certificates.is_empty() {
            return Err(unreadable());
        }
        Ok(certificates)
    }
}

/// Whether a host's name means this machine.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn mysql_has_its_own_words_for_them() {
        let (settings, url) = TlsSettings::split("mysql://h/d?ssl-mode=REQUIRED&ssl-ca=ca.pem");
        assert_eq!(url, "mysql://h/d");
        assert_eq!(settings.mode.as_deref(), Some("REQUIRED"));
        assert_eq!(settings.root_certificates.as_deref(), Some("ca.pem"));
    }
}
