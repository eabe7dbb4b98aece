//! TLS to MySQL: which servers it is asked of.
//!
//! A server on this machine is reached without TLS unless the URL asks for it; any other must offer it
//! unless the URL says `sslmode=disable`.

use mysql_async::{Opts, SslOpts};

use crate::db::tls::{TlsSettings, is_loopback};
use crate::error::{Error, ErrorKind};

/// What to tell the client, `None` for no TLS.
pub(super) fn settings(settings: &TlsSettings, opts: &Opts) -> Result<Option<SslOpts>, Error> {
    if !is_required(settings, opts)? {
        return Ok(None);
    }
    // The client takes the process's provider and panics when there are two to choose from and none was
    // chosen. One that the program has chosen stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = settings.certificates()?;
    let roots = certificates
        .iter()
        .map(|certificate| certificate.as_ref().to_vec().into())
        .collect();
    Ok(Some(
        SslOpts::default()
            .with_disable_built_in_roots(true)
            .with_root_certs(roots),
    ))
}

/// Whether TLS is asked for.
pub(super) fn is_required(settings: &TlsSettings, opts: &Opts) -> Result<bool, Error> {
    let mode = settings.mode.as_ref().map(|mode| mode.to_ascii_lowercase());
    match mode.as_deref() {
        Some("disable" | "disabled") => Ok(false),
        Some(
            "require" | "required" | "verify-ca" | "verify_ca" | "verify-full" | "verify_identity",
        ) => Ok(true),
        Some(_) => Err(ErrorKind::InvalidArgument { param: "url" }
            .with("sslmode is disable, require, verify-ca or verify-full")),
        None => Ok(opts.socket().is_none() && !is_loopback(opts.ip_or_hostname())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_tls(url: &str) -> bool {
        let (tls, url) = TlsSettings::split(url);
        let opts = Opts::from_url(&url).expect("a URL");
        settings(&tls, &opts).expect("settings").is_some()
    }

    #[test]
    fn other_hosts_need_tls_unless_the_url_says_otherwise() {
        assert!(!has_tls("mysql://127.0.0.1/d"));
        assert!(!has_tls("mysql://localhost/d"));
        assert!(!has_tls("mysql://[::1]/d"));
        assert!(has_tls("mysql://db.example/d"));
        assert!(!has_tls("mysql://db.example/d?sslmode=disable"));
        assert!(!has_tls("mysql://db.example/d?ssl-mode=DISABLED"));
        assert!(has_tls("mysql://localhost/d?sslmode=verify-full"));
    }
}
