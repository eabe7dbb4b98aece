//! TLS to PostgreSQL: certificates are verified, and plain text is refused where TLS is asked for.

#![allow(clippy::unwrap_used, reason = "tests")]

mod postgres {
    use postroom::{Message, Options, Postroom};
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use testkit::postgres::{Durability, Server};

    /// A server with a certificate for `host`, and the file with the authority that signed it.
    struct Secured {
        server: Server,
        authority: tempfile::NamedTempFile,
    }

    impl Secured {
        fn new(host: &str) -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer =
                CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(vec![host.to_owned()])
                .unwrap()
                .signed_by(&key, &issuer)
                .unwrap();
            let server = Server::start(Durability::Off).unwrap();
            server
                .offer_tls(&certificate.pem(), &key.serialize_pem())
                .unwrap();
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

    /// Shows OBX-126, IBX-128.
    #[tokio::test(flavor = "multi_thread")]
    async fn connections_are_encrypted_and_the_server_is_verified() {
        let secured = Secured::new("127.0.0.1");
        let room = secured
            .connect(&format!("sslmode=verify-full&{}", secured.authority()))
            .await
            .unwrap();
        room.outbox()
            .enqueue(&Message::new("a", "b"))
            .await
            .unwrap();

        let (client, connection) =
            tokio_postgres::connect(secured.server.url(), tokio_postgres::NoTls)
                .await
                .unwrap();
        tokio::spawn(connection);
        let row = client
            .query_one(
                "SELECT count(*) FILTER (WHERE s.ssl), count(*) FILTER (WHERE NOT s.ssl)
                 FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a USING (pid)
                 WHERE a.application_name = 'postroom'",
                &[],
            )
            .await
            .unwrap();
        let (encrypted, plain): (i64, i64) = (row.get(0), row.get(1));
        assert!(
            encrypted > 0 && plain == 0,
            "{encrypted} encrypted, {plain} plain"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_authority_that_is_not_trusted_is_refused() {
        let secured = Secured::new("127.0.0.1");
        let error = secured.connect("sslmode=require").await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_certificate_for_another_host_is_refused() {
        let secured = Secured::new("db.example");
        let error = secured
            .connect(&format!("sslmode=verify-full&{}", secured.authority()))
            .await
            .unwrap_err();
        assert!(error.is_transient(), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_without_tls_is_refused_when_tls_is_asked_for() {
        let server = Server::start(Durability::Off).unwrap();
        let url = format!("{}?sslmode=require", server.url());
        Postroom::connect(&url).await.unwrap_err();
        Postroom::connect(server.url()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_missing_authority_file_is_named_as_the_fault() {
        let error =
            Postroom::connect("postgres://127.0.0.1:1/x?sslmode=require&sslrootcert=/nowhere.pem")
                .await
                .unwrap_err();
        assert_eq!(error.param(), Some("url"));
        assert!(error.to_string().contains("sslrootcert"), "{error}");
    }
}
