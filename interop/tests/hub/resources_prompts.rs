//! Resources and prompts of `server-everything`, over both transports.

use interop_tests::hub::{HubDirectory, everything_config};
use interop_tests::peer::RunningServer;
use serde_json::json;

use crate::{strings_at, text};

#[test]
fn resources_and_prompts_by_rest_and_on_the_command_line() {
    let (home, served) = (HubDirectory::new(), RunningServer::everything("streamableHttp"));
    home.write(&format!("[egress]\nallow = [\"127.0.0.0/8\"]\n{}", everything_config()));
    let hub = home.start();
    hub.add("remote", served.url(), json!({}));
    let prompts = ["args-prompt", "completable-prompt", "resource-prompt", "simple-prompt"];
    for server in ["everything", "remote"] {
        let path = format!("/servers/{server}");
        let resources = hub.list(&format!("{path}/resources?limit=500"));
        let uri =
            strings_at(&resources, "/uri").into_iter().find(|uri| uri.ends_with("features.md")).unwrap();
        let read = hub.post(&format!("{path}/resources/read"), json!({ "uri": uri }));
        assert!(text(&read["contents"][0]["text"]).contains("Everything Server"), "{read}");
        assert_eq!(
            home.ok(&["resource", "read", server, uri]).trim_end(),
            text(&read["contents"][0]["text"]).trim_end()
        );
        let templates = hub.list(&format!("{path}/resource-templates"));
        assert!(
            strings_at(&templates, "/uriTemplate").contains(&"demo://resource/dynamic/text/{resourceId}")
        );
        let shown = home.ok(&["resource", "read", server, "demo://resource/dynamic/text/7"]);
        assert!(shown.starts_with("Resource 7: "), "{shown}");
        let shown = home.ok(&["resource", "read", server, "demo://resource/dynamic/blob/7"]);
        assert!(shown.contains("use --json to show it"), "{shown}");
        let page = hub.get(&format!("{path}/resources?limit=2"));
        let rest = hub.list(&format!("{path}/resources?limit=500&after={}", text(&page["next"])));
        assert_eq!(rest.len() + 2, resources.len());
        let problem = hub.expect_error(
            503,
            "POST",
            &format!("{path}/resources/read"),
            json!({ "uri": "demo://no/such" }),
        );
        assert!(text(&problem["detail"]).contains("demo://no/such"), "{problem}");

        let mut names = hub.list(&format!("{path}/prompts"));
        names.sort_by_key(|prompt| text(&prompt["name"]).to_owned());
        assert_eq!(strings_at(&names, "/name"), prompts);
        let filled =
            hub.post(&format!("{path}/prompts/args-prompt"), json!({ "arguments": { "city": "Ulm" } }));
        assert_eq!(filled["messages"][0]["content"]["text"], "What's weather in Ulm?");
        let shown = home.ok(&["prompt", "get", server, "args-prompt", "--arg", "city=Ulm"]);
        assert_eq!(shown, "user: What's weather in Ulm?\n");
        let missing = home.fails(&["prompt", "get", server, "args-prompt"]);
        assert!(missing.contains("city"), "{missing}");
        assert!(home.ok(&["prompt", "list", server]).contains("simple-prompt"));
        assert!(home.ok(&["resource", "list", server]).contains(uri));
        assert!(home.ok(&["resource", "list", server, "--templates"]).contains("{resourceId}"));
    }
    // Agents see only the resources and prompts of their servers.
    let (_, agent) = hub.agent("Ada", "auto", &json!({ "remote": {} }));
    assert_eq!(agent.list("/servers/remote/prompts").len(), prompts.len());
    assert!(matches!(agent.send("GET", "/servers/everything/prompts", None).status, 403 | 404));
    hub.expect_error(422, "POST", "/servers/remote/resources/read", json!({}));
}
