//! TLS connections to the database, as configured by its URL.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use linchpin_hub_core::store::DocumentStore as _;
use linchpin_hub_store::Postgres;
use test_postgres::{Server, server};

const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/tests/egress/certificates");

/// Opens a store. Returns whether its connections use TLS.
async fn uses_tls(server: &Server, database: &str, url: &str) -> Result<String, String> {
    let store = Postgres::open(url).await.map_err(|error| error.to_string())?;
    store.tenants().await.unwrap();
    let lines = "pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'linchpin'";
    Ok(server.sql(database, &format!("SELECT DISTINCT ssl FROM {lines} AND datname = '{database}'")))
}

#[tokio::test]
async fn what_the_url_asks_for_is_what_is_done() {
    let server = Server::start();
    let read = |name| std::fs::read(format!("{CERTIFICATES}/{name}")).unwrap();
    server.enable_tls(&read("server.pem"), &read("server.key"));
    let authority = format!("&sslrootcert={}", CERTIFICATES.replace('/', "%2F")) + "%2Fauthority.pem";
    let other = authority.replace("authority", "other");
    for (host, query, expected) in [
        ("127.0.0.1", "sslmode=require", Ok("t")),
        ("127.0.0.1", "sslmode=verify-full", Ok("t")),
        ("127.0.0.1", "sslmode=verify-ca", Ok("t")),
        // The certificate is for another name.
        ("localhost", "sslmode=require", Err("not valid for name")),
        ("localhost", "sslmode=verify-full", Err("not valid for name")),
        ("localhost", "sslmode=verify-ca", Ok("t")),
        ("127.0.0.1", "sslmode=disable", Ok("f")),
        ("127.0.0.1", "connect_timeout=5", Ok("f")),
    ] {
        let database = server.create_database();
        let url = format!("{}?{query}{authority}", server.tcp_url(&database).replace("127.0.0.1", host));
        let outcome = uses_tls(&server, &database, &url).await;
        match (outcome, expected) {
            (Ok(ssl), Ok(expected)) => assert_eq!(ssl, expected, "{host} {query}"),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{host} {query}: {error}"),
            (outcome, _) => panic!("{host} {query}: {outcome:?}"),
        }
    }
    let database = server.create_database();
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = format!("{}?sslmode={mode}{other}", server.tcp_url(&database));
        let error = uses_tls(&server, &database, &url).await.unwrap_err();
        let expected = "the TLS handshake failed: invalid peer certificate: UnknownIssuer; check sslmode and sslrootcert";
        assert!(error.contains(expected), "{error}");
    }
    // A Unix socket needs no TLS.
    let url = format!("{}?sslmode=verify-full{authority}", server.url(&database));
    assert_eq!(uses_tls(&server, &database, &url).await.unwrap(), "f");
}

#[tokio::test]
async fn whoever_asks_for_tls_gets_nothing_less() {
    let database = server().create_database();
    let url =
        format!("{}?sslmode=require&sslrootcert={CERTIFICATES}/authority.pem", server().tcp_url(&database));
    let error = uses_tls(server(), &database, &url).await.unwrap_err();
    assert!(error.contains("the TLS handshake failed: server does not support TLS"), "{error}");
}
