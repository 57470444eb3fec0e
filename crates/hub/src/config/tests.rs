//! Tests of the configuration file: valid files, and the error for each mistake.

use std::path::Path;
use std::time::Duration;

use linchpin_hub_core::hub::HubLimits;
use linchpin_hub_core::server::{Authentication, CredentialMode, Transport};

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("linchpin.toml"), text).map_err(|problem| problem.to_string())
}

#[test]
fn localhost_is_this_machine() {
    for (text, expected) in [
        ("localhost:9000", Some("127.0.0.1:9000")),
        ("LocalHost:0", Some("127.0.0.1:0")),
        ("[::1]:9000", Some("[::1]:9000")),
        ("localhost", None),
        ("localhost:x", None),
        ("hub.example:9000", None),
        (":9000", None),
    ] {
        assert_eq!(parse_address(text).ok(), expected.map(|text| text.parse().unwrap()), "{text}");
    }
}

#[test]
fn everything_that_can_be_said() {
    let config = parse(
        r#"
        listen = "127.0.0.1:7420"        # optional
        url = "https://hub.example:443"
        proxies = ["10.0.0.5", "fd00::/8"]
        tls = { certificate = "hub.pem", key = "/keys/hub.key" }
        [history]
        days = 30
        [audit]
        durability = "power"
        days = 365
        folder = "/srv/audit"
        head = "/srv/head"
        [limits]
        result_bytes = 1_024
        connection_idle_minutes = 5
        sync_interval_minutes = 60
        [egress]
        allow = ["10.0.0.0/8", "fd00::1"]
        proxy = "http://hub:$PROXY_PASSWORD@proxy.example:3128"
        [servers.files]
        name = "Files"
        command = "npx"
        args = ["-y", "@modelcontextprotocol/server-everything"]
        env = { KEY = "value" }
        inherit = ["GITHUB_TOKEN"]
        directory = "/srv"
        timeout_ms = 30_000
        retry_attempts = 3
        enabled = true
        keep_history = true
        calls_per_minute = 600
        [servers.remote]
        url = "https://example.com/mcp"
        transport = "sse"
        headers = { x-team = "a" }
        credentials = "per-agent"
        [servers.remote.authentication]
        type = "bearer"
        "#,
    )
    .unwrap();
    assert_eq!((config.listen, config.days), ("127.0.0.1:7420".parse().ok(), Some(30)));
    let (durability, folder) = (Some(Durability::Power), Some("/srv/audit".into()));
    let head = Some("/srv/head".into());
    assert_eq!(config.audit, AuditConfig { durability, days: Some(365), folder, head });
    let limits = HubLimits {
        result_bytes: 1_024,
        connection_idle: Duration::from_mins(5),
        sync_interval: Duration::from_hours(1),
    };
    assert_eq!(config.hub_limits(), limits);
    assert!(config.egress.proxy.is_some());
    assert_eq!(config.egress.networks, ["10.0.0.0/8".parse().unwrap(), "fd00::1".parse().unwrap()]);
    assert_eq!(config.url.unwrap().url, "https://hub.example");
    assert_eq!(config.proxies, ["10.0.0.5".parse().unwrap(), "fd00::/8".parse().unwrap()]);
    let (certificate, key) = ("hub.pem".into(), "/keys/hub.key".into());
    assert_eq!(config.tls, Some(TlsFiles { certificate, key }));
    let [files, remote] = &config.servers[..] else { panic!("{:?}", config.servers) };
    assert_eq!((files.slug.as_str(), &*files.settings.name), ("files", "Files"));
    assert_eq!(
        (files.settings.calls_per_minute, &files.inherit[..]),
        (Some(600), &["GITHUB_TOKEN".to_owned()][..])
    );
    assert!(matches!(&files.transport, Transport::Stdio(launch) if launch.env["KEY"] == "value"));
    assert!(matches!(&remote.transport, Transport::Sse(remote) if remote.headers["x-team"] == "a"));
    assert_eq!(remote.settings.authentication, Authentication::Bearer);
    assert_eq!((remote.settings.credentials, &*remote.settings.name), (CredentialMode::PerAgent, "remote"));
    assert_eq!(parse(""), Ok(Config::default()));
    assert_eq!(Config::default().hub_limits(), HubLimits::default());
    assert_eq!(parse("# Nothing yet.\n[servers]\n"), Ok(Config::default()));
}

#[test]
fn every_mistake_has_its_place_its_field_and_what_to_do() {
    let cases = [
        // Invalid TOML.
        ("listen = ", "line 1, column 10: "),
        ("\n\nlisten \"x\"\n", "line 3, column "),
        ("a = 1\na = 2\n", "line 2, column 1: `a`: duplicate key: remove one of them"),
        ("[servers.a]\ncommand = \"x\"\n[servers.a]\n", "line 3, column "),
        ("[servers.a]\ncommand = x\n", "line 2, column 11: "),
        // Top-level fields.
        ("lisen = \"x\"", "line 1, column 1: `lisen`: unknown field: did you mean `listen`?"),
        ("[server.a]\ncommand = \"x\"", "line 1, column 2: `server`: unknown field: did you mean `servers`?"),
        (
            "listen = \"here\"",
            "line 1, column 1: `listen`: must be an IP address and a port, such as `127.0.0.1:7420`",
        ),
        ("listen = 7420", "line 1, column 1: `listen`: must be a string"),
        ("[history]\ndays = 0", "line 2, column 1: `history.days`: must be an integer from 1 to 3650"),
        ("[history]\ndays = 30.5", "line 2, column 1: `history.days`: must be an integer from 1 to 3650"),
        ("[history]\nday = 1", "line 2, column 1: `history.day`: unknown field: did you mean `days`?"),
        (
            "[audit]\ndurability = \"disk\"",
            "line 2, column 1: `audit.durability`: must be `process` or `power`",
        ),
        ("[audit]\ndays = 0", "line 2, column 1: `audit.days`: must be an integer from 1 to 36500"),
        (
            "[limits]\nresult_bytes = 10",
            "line 2, column 1: `limits.result_bytes`: must be an integer from 1024 to 67108864",
        ),
        ("[limits]\nidle = 1", "line 2, column 1: `limits.idle`: unknown field"),
        ("history = 3", "line 1, column 1: `history`: must be an object"),
        (
            "[egress]\nallow = [\"10\"]",
            "line 2, column 1: `egress.allow`: `10` is not a network: write it as `10.0.0.0/8`",
        ),
        (
            "[egress]\nproxy = \"http://a:b@proxy\"",
            "line 2, column 1: `egress.proxy`: the password must be an environment variable: write `http://user:$NAME@host:port`",
        ),
        ("[egress]\nallow = \"10.0.0.0/8\"", "line 2, column 1: `egress.allow`: must be a list"),
        (
            "servers = []",
            "line 1, column 1: `servers`: must contain one table per server: write `[servers.NAME]`",
        ),
        ("[[servers]]\nname = \"a\"", "column 3: `servers`: must contain one table per server"),
        // Servers.
        (
            "[servers.A]\ncommand = \"x\"",
            "line 1, column 10: `servers.A`: must be 1 to 32 lowercase letters, digits and `-`: try `a`",
        ),
        ("[servers]\na = 1", "line 2, column 1: `servers.a`: must be an object"),
        (
            "[servers.a]\nname = \"A\"",
            "line 1, column 10: `servers.a.command`: a server requires either a `command`",
        ),
        (
            "[servers.a]\ncommand = \"x\"\nurl = \"https://a.example\"",
            "line 3, column 1: `servers.a.url`: must not be set together with `command`",
        ),
        (
            "[servers.a]\n  comand = \"x\"",
            "line 2, column 3: `servers.a.comand`: unknown field: did you mean `command`?",
        ),
        (
            "[servers.a]\ncommand = \"x\"\ntimeout_ms = 999",
            "line 3, column 1: `servers.a.timeout_ms`: must be an integer from 1000 to 300000",
        ),
        (
            "[servers.a]\ncommand = \"x\"\nread_timeout_ms = 60000",
            "line 3, column 1: `servers.a.read_timeout_ms`: must not be set: a stdio server has no streams over HTTP",
        ),
        (
            "[servers.a]\nurl = \"https://a.example\"\nmax_call_ms = 20000",
            "line 3, column 1: `servers.a.max_call_ms`: must not be below `timeout_ms`, which it extends",
        ),
        (
            "[servers.a]\ncommand = \"x\"\ncalls_per_minute = 0",
            "line 3, column 1: `servers.a.calls_per_minute`: must be an integer from 1 to 100000",
        ),
        (
            "[servers.a]\ncommand = \"x\"\nenv = { A = 1 }",
            "line 3, column 9: `servers.a.env.A`: must be a string",
        ),
        (
            "[servers.a]\nurl = \"https://a.example\"\nheaders = { \"x.y\" = \"a\", \"é\" = \"b\" }",
            "line 3, column 26: `servers.a.headers.é`",
        ),
        (
            "[servers.a]\nurl = \"https://a.example\"\nauthentication.type = \"x\"",
            "line 3, column 16: `servers.a.authentication.type`",
        ),
        (
            "[servers.a]\nurl = \"http://a.example\"",
            "line 2, column 1: `servers.a.url`: plain `http` is not encrypted",
        ),
        (
            "[servers.a]\ncommand = \"x\"\nname = 1979-05-27",
            "line 3, column 1: `name`: dates are not supported",
        ),
        (
            "[servers.a]\ncommand = \"x\"\ntimeout_ms = inf",
            "line 3, column 1: `timeout_ms`: must be a finite number",
        ),
    ];
    refused(&cases);
}

#[track_caller]
fn refused(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let error = parse(text).expect_err(text);
        assert!(error.starts_with("`linchpin.toml`, line "), "{text}\n{error}");
        assert!(error.contains(expected), "{text}\n{error}\n{expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn who_comes_in_is_said_as_well() {
    refused(&[
        (
            "proxies = [\"10.0.0.5\"]",
            "line 1, column 1: `proxies`: requires the public URL that these proxies serve, such as `url = ",
        ),
        (
            "url = \"https://a.example\"\nproxies = [\"a.example\"]",
            "line 2, column 1: `proxies`: `a.example` is not a network: write it as `10.0.0.0/8`",
        ),
        ("[tls]\nkey = \"a\"", "`tls.certificate`: set both `certificate` and `key`, each to a PEM file"),
        ("[tls]\ncertificate = \"a\"", "`tls.key`: set both `certificate` and `key`, each to a PEM file"),
    ]);
}

#[test]
fn what_stands_in_the_file_is_not_shown() {
    let cases = [
        "[servers.a]\ncommand = \"x\"\nenv = { A = \"canary\" B }",
        "[servers.a]\ncommand = \"x\"\nenv = { A = \"canary }",
        "[servers.a]\ncommand = \"x\"\nenv = \"canary\"",
        "[servers.a]\ncommand = \"x\"\nargs = [\"canary\", 1]",
        "[servers.a]\nurl = \"canary\"",
        "[servers.a]\ncommand = canary",
        "canary",
    ];
    for text in cases {
        let error = parse(text).expect_err(text);
        assert!(!error.contains("canary"), "{error}");
    }
}
