//! Snapshot of the `OpenAPI` document: every change of the API changes `openapi.json`.

use std::path::Path;

#[test]
fn the_document_is_the_one_that_is_kept() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let text = serde_json::to_string_pretty(&linchpin_hub_http::openapi()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let lines = kept.lines().zip(text.lines()).take_while(|(kept, now)| kept == now).count() + 1;
    assert!(
        kept == text,
        "crates/hub-http/openapi.json is not what the routes say, from line {lines} on: if that is meant, run\n\
         UPDATE_SNAPSHOTS=1 cargo test -p linchpin-hub-http --test rest openapi"
    );
}

#[test]
fn everything_that_is_named_is_there() {
    let document = linchpin_hub_http::openapi();
    let text = document.to_string();
    let mut named = 0;
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
        named += 1;
    }
    assert!(named > 100, "{named}");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let doubled = schemas.keys().find(|name| name.ends_with(|char: char| char.is_ascii_digit()));
    assert_eq!(doubled, None, "two types have one name: give one of them another with #[schemars(rename)]");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert_ne!(operation["summary"], "", "{method} {path}");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            assert!(parameters.clone().all(|parameter| parameter["description"] != ""), "{method} {path}");
            assert!(operation["responses"].as_object().unwrap().len() > 1, "{method} {path}");
        }
    }
}

/// The CLI reads every list page by page.
#[test]
fn every_list_takes_a_limit_and_a_position() {
    let document = linchpin_hub_http::openapi();
    let mut lists = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let answer = &operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
            if !answer.as_str().is_some_and(|schema| schema.ends_with("Page")) {
                continue;
            }
            lists += 1;
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let names: Vec<_> = parameters.filter_map(|parameter| parameter["name"].as_str()).collect();
            assert!(names.contains(&"limit") && names.contains(&"after"), "{method} {path}: {names:?}");
        }
    }
    assert!(lists > 10, "{lists}");
}
