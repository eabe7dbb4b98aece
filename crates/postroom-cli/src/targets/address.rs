//! Which addresses a target may have. A message must not make this process talk to what only this process
//! can reach: this machine, the network that it is in, the cloud's metadata.
//!
//! An address that is written down is checked when the target is made. A name is looked up for every new
//! connection, the answer is checked there, and the connection goes to what was checked: a name that
//! means something else the next time gains nothing.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Reads an endpoint's URL, and refuses what is not allowed. The error does not quote it: a path may be a
/// secret.
pub(crate) fn endpoint(url: &str, allow_http: bool, allow_private: bool) -> Result<Url, String> {
    let url = Url::parse(url).map_err(|error| {
        format!("expected an address such as https://shop.example/hooks: {error}")
    })?;
    match url.scheme() {
        "https" => {}
        "http" if allow_http => {}
        "http" => {
            return Err(
                "is plain http, which anybody on the way can read; use https, or set allow_http"
                    .to_owned(),
            );
        }
        _ => return Err("expected https://".to_owned()),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "holds a user or a password; send it as a header: headers = { authorization = { env = \"NAME\" } }"
                .to_owned(),
        );
    }
    if let Some(address) = literal(&url)
        && !allow_private
        && !is_public(address)
    {
        return Err(Refused.to_string());
    }
    Ok(url)
}

/// The address itself, when the URL has one instead of a name. All ways to write it (decimal, octal,
/// hexadecimal, with fewer dots) have become one by now.
fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_matches(['[', ']']).parse().ok()
}

/// An address that no message may be sent to.
#[derive(Debug)]
pub(super) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "is a private, local or reserved address; set allow_private if that is what you want",
        )
    }
}

impl std::error::Error for Refused {}

/// Whether an address is one of the public internet's.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = match (a, b, c) {
        // "This network", private, this machine.
        (0 | 10 | 127, _, _) => true,
        // Carrier-grade NAT.
        (100, 64..=127, _) => true,
        // Link-local, where clouds keep their metadata.
        (169, 254, _) => true,
        (172, 16..=31, _) | (192, 168, _) => true,
        // Protocol assignments, documentation, relays of 6to4.
        (192, 0, 0 | 2) | (192, 88, 99) => true,
        // Benchmarks, documentation.
        (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => true,
        // Multicast, reserved, broadcast.
        (224.., _, _) => true,
        _ => false,
    };
    !reserved
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    match segments {
        // IPv4 in IPv6's clothes: mapped, by NAT64, by 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => is_public_v4(joined(high, low)),
        // Protocol assignments (Teredo is one), documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // What is not global unicast: unspecified, loopback, compatible with IPv4, unique local, link-local,
        // site-local, multicast, and what nobody has been given yet.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

fn joined(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

/// Asks what a name means.
pub(super) trait Lookup: Send + Sync + 'static {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's answer.
pub(super) struct System;

impl Lookup for System {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    }
}

/// Looks names up, and lets only public addresses through. What it gives out is what is connected to:
/// nobody asks a second time.
pub(super) struct PublicOnly<L>(Arc<L>);

impl<L: Lookup> PublicOnly<L> {
    pub(super) fn new(lookup: L) -> Self {
        Self(Arc::new(lookup))
    }
}

impl<L: Lookup> Resolve for PublicOnly<L> {
    fn resolve(&self, name: Name) -> Resolving {
        let looking = self.0.lookup(name.as_str().to_owned());
        Box::pin(async move {
            let mut addresses = looking.await?;
            addresses.retain(|address| is_public(address.ip()));
            if addresses.is_empty() {
                return Err(Refused.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PRIVATE: &[&str] = &[
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "127.8.9.10",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::1.1.1.1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ];

    const PUBLIC: &[&str] = &[
        "1.1.1.1",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
        "2002:101:101::1",
        "2606:4700:4700::1111",
        "2a00:1450:4001::1",
    ];

    #[test]
    fn private_addresses_are_told_from_public_ones() {
        for address in PRIVATE {
            assert!(
                !is_public(address.parse().expect("an address")),
                "{address}"
            );
        }
        for address in PUBLIC {
            assert!(is_public(address.parse().expect("an address")), "{address}");
        }
    }

    /// Shows X11.
    #[test]
    fn a_private_address_is_refused_however_it_is_written() {
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "017700000001",
            "0177.0.0.1",
            "127.1",
            "127.0.1",
            "%31%32%37.0.0.1",
            "１２７.0.0.1",
            "127。0。0。1",
            "127.0.0.1.",
            "0",
            "169.254.169.254",
            "2852039166",
            "0xA9FEA9FE",
            "0251.0376.0251.0376",
            "[::1]",
            "[::]",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:7f00:1::]",
            "[fd00:ec2::254]",
            "[fe80::1]",
        ] {
            let url = format!("https://{host}/hook");
            let refused = endpoint(&url, false, false).expect_err(host);
            assert!(refused.contains("allow_private"), "{host}: {refused}");
            assert!(endpoint(&url, false, true).is_ok(), "{host}");
        }
        for host in ["1.1.1.1", "[2606:4700:4700::1111]", "shop.example"] {
            assert!(endpoint(&format!("https://{host}/"), false, false).is_ok());
        }
    }

    #[test]
    fn plain_http_and_passwords_are_refused() {
        for (url, reason) in [
            ("http://shop.example/", "allow_http"),
            ("ftp://shop.example/", "https://"),
            ("file:///etc/passwd", "https://"),
            ("https://ada@shop.example/", "password"),
            ("https://ada:hunter2@shop.example/", "password"),
            ("shop.example/hook", "expected an address"),
            ("https://", "expected an address"),
        ] {
            let refused = endpoint(url, false, false).expect_err(url);
            assert!(refused.contains(reason), "{url}: {refused}");
            assert!(!refused.contains("hunter2"));
        }
        assert!(endpoint("http://shop.example/", true, false).is_ok());
    }

    /// A name server that says something else each time.
    struct Rebinding {
        answers: Vec<Vec<&'static str>>,
        asked: Arc<AtomicUsize>,
    }

    impl Lookup for Rebinding {
        fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            let turn = self.asked.fetch_add(1, Ordering::SeqCst);
            let answer = self.answers[turn]
                .iter()
                .map(|address| SocketAddr::new(address.parse().expect("an address"), 0))
                .collect();
            Box::pin(async move { Ok(answer) })
        }
    }

    /// Shows X11.
    #[tokio::test]
    async fn a_name_that_changes_its_mind_reaches_nothing_private() {
        let asked = Arc::new(AtomicUsize::new(0));
        let resolver = PublicOnly::new(Rebinding {
            answers: vec![
                vec!["1.1.1.1"],
                vec!["127.0.0.1"],
                vec!["169.254.169.254", "1.1.1.1", "::ffff:10.0.0.1"],
                vec!["fd00:ec2::254", "::1"],
                vec![],
            ],
            asked: Arc::clone(&asked),
        });
        let mut seen: Vec<Option<Vec<String>>> = Vec::new();
        for _ in 0..5 {
            let answer = resolver
                .resolve("rebind.example".parse().expect("a name"))
                .await;
            seen.push(
                answer
                    .map(|found| found.map(|address| address.ip().to_string()).collect())
                    .map_err(|error| assert!(error.is::<Refused>()))
                    .ok(),
            );
        }
        let public = || Some(vec!["1.1.1.1".to_owned()]);
        assert_eq!(seen, [public(), None, public(), None, None]);
        assert_eq!(asked.load(Ordering::SeqCst), 5, "once for each connection");
    }

    /// Shows X11: what is connected to is what the resolver gave out, and it is asked for every attempt.
    #[tokio::test]
    async fn an_attempt_asks_once_and_connects_to_nothing_else() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(AtomicUsize::new(0));
        let client = reqwest::Client::builder()
            .no_proxy()
            .dns_resolver(PublicOnly::new(Rebinding {
                answers: vec![vec!["127.0.0.1"], vec!["127.0.0.1"]],
                asked: Arc::clone(&asked),
            }))
            .build()
            .expect("a client");
        for attempt in 1..=2 {
            let sent = client.post(format!("http://rebind.example:{port}/")).send();
            assert!(sent.await.is_err());
            assert_eq!(asked.load(Ordering::SeqCst), attempt);
        }
        let nobody = tokio::time::timeout(std::time::Duration::from_millis(50), listener.accept());
        assert!(nobody.await.is_err(), "somebody connected");
    }
}
