//! TLS to servers: certificates are verified, and plain text is refused where TLS is asked for.

#![allow(clippy::unwrap_used, reason = "tests")]

use postroom::{ErrorKind, Message, Options, Postroom};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use testkit::eventually;
use testkit::server::Durability;

/// A private server that can be told to offer TLS.
trait Server: Sized {
    const SCHEME: &str;

    fn start() -> Self;

    fn url(&self) -> &str;

    fn offer_tls(&mut self, certificate: &str, key: &str);

    /// From now on whoever comes in plain text is sent away.
    async fn let_in_by_tls_only(&self);
}

impl Server for testkit::postgres::Server {
    const SCHEME: &str = "postgres";

    fn start() -> Self {
        Self::start(Durability::Off).unwrap()
    }

    fn url(&self) -> &str {
        self.url()
    }

    fn offer_tls(&mut self, certificate: &str, key: &str) {
        Self::offer_tls(self, certificate, key).unwrap();
    }

    async fn let_in_by_tls_only(&self) {
        let rules = self.folder().join("data/pg_hba.conf");
        std::fs::write(rules, "hostssl all all 127.0.0.1/32 trust\n").unwrap();
        let plain = || tokio_postgres::connect(self.url(), tokio_postgres::NoTls);
        let (client, connection) = plain().await.unwrap();
        tokio::spawn(connection);
        let reload = "SELECT pg_reload_conf()";
        client.execute(reload, &[]).await.unwrap();
        eventually(|| async { plain().await.err() }).await;
    }
}

impl Server for testkit::mysql::Server {
    const SCHEME: &str = "mysql";

    fn start() -> Self {
        Self::start(Durability::Off).unwrap()
    }

    fn url(&self) -> &str {
        self.url()
    }

    fn offer_tls(&mut self, certificate: &str, key: &str) {
        Self::offer_tls(self, certificate, key).unwrap();
    }

    async fn let_in_by_tls_only(&self) {
        use mysql_async::prelude::Queryable;
        let mut connection = mysql_async::Conn::from_url(self.url()).await.unwrap();
        let rule = "ALTER USER postroom@'%' REQUIRE SSL";
        connection.query_drop(rule).await.unwrap();
        connection.disconnect().await.unwrap();
    }
}

/// A server with a certificate for `host`, and the file with the authority that signed it.
struct Secured<S> {
    server: S,
    authority: tempfile::NamedTempFile,
}

impl<S: Server> Secured<S> {
    fn new(host: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![host.to_owned()])
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        let mut server = S::start();
        server.offer_tls(&certificate.pem(), &key.serialize_pem());
        let authority = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(authority.path(), issuer.pem()).unwrap();
        Self { server, authority }
    }

    async fn connect(&self, settings: &str) -> Result<Postroom, postroom::Error> {
        let url = format!("{}?{settings}", self.server.url());
        Options::new(url).dev_profile().connect().await
    }

    fn authority(&self) -> String {
        format!("sslrootcert={}", self.authority.path().display())
    }
}

/// The error of a connection that was to be encrypted and could not be.
fn no_tls(connected: Result<Postroom, postroom::Error>) {
    let error = connected.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("no TLS connection"), "{error}");
}

/// Shows OBX-126, IBX-128.
async fn connections_are_encrypted_and_the_server_is_verified<S: Server>() {
    let secured = Secured::<S>::new("127.0.0.1");
    secured.server.let_in_by_tls_only().await;
    let room = secured
        .connect(&format!("sslmode=verify-full&{}", secured.authority()))
        .await
        .unwrap();
    room.outbox()
        .enqueue(&Message::new("a", "b"))
        .await
        .unwrap();

    let error = secured.connect("sslmode=disable").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Database, "{error}");
}

async fn an_authority_that_is_not_trusted_is_refused<S: Server>() {
    let secured = Secured::<S>::new("127.0.0.1");
    no_tls(secured.connect("sslmode=require").await);
}

async fn a_certificate_for_another_host_is_refused<S: Server>() {
    let secured = Secured::<S>::new("db.example");
    let settings = format!("sslmode=verify-full&{}", secured.authority());
    no_tls(secured.connect(&settings).await);
}

async fn a_server_without_tls_is_refused_when_tls_is_asked_for<S: Server>() {
    let server = S::start();
    let url = format!("{}?sslmode=require", server.url());
    no_tls(Postroom::connect(&url).await);
    Postroom::connect(server.url()).await.unwrap();
}

/// By default only a server on this machine may do without TLS. This is one, by a name that does not say so.
async fn a_server_elsewhere_has_to_offer_tls<S: Server>() {
    let server = S::start();
    let elsewhere = server.url().replace("127.0.0.1", "127.1");
    no_tls(Postroom::connect(&elsewhere).await);
    let plain = format!("{elsewhere}?sslmode=disable");
    Postroom::connect(&plain).await.unwrap();
}

async fn a_missing_authority_file_is_named_as_the_fault<S: Server>() {
    let scheme = S::SCHEME;
    let url = format!("{scheme}://127.0.0.1:1/x?sslmode=require&sslrootcert=/nowhere.pem");
    let error = Postroom::connect(&url).await.unwrap_err();
    assert_eq!(error.param(), Some("url"));
    assert!(error.to_string().contains("sslrootcert"), "{error}");
}

macro_rules! mount {
    (@ $database:ident: $($test:ident),+) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            super::$test::<testkit::$database::Server>().await;
        })+
    };
    ($($test:ident),+ $(,)?) => {
        mod postgres {
            mount!(@ postgres: $($test),+);
        }

        mod mysql {
            mount!(@ mysql: $($test),+);
        }
    };
}

mount!(
    connections_are_encrypted_and_the_server_is_verified,
    an_authority_that_is_not_trusted_is_refused,
    a_certificate_for_another_host_is_refused,
    a_server_without_tls_is_refused_when_tls_is_asked_for,
    a_server_elsewhere_has_to_offer_tls,
    a_missing_authority_file_is_named_as_the_fault,
);
