//! Secrets appear in no output, log or file.

use linchpin_hub_core::events::NewEvent;

use super::*;

/// Returns whether the bytes contain a text or its hexadecimal form.
fn contains(bytes: &[u8], text: &str) -> bool {
    let digits = text.bytes().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits: String = digits.map(|digit| char::from_digit(digit.into(), 16).unwrap()).collect();
    let find = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    find(text.as_bytes()) || find(digits.as_bytes())
}

#[tokio::test]
async fn no_secret_is_in_files_answers_events_or_the_audit() {
    let stage = Stage::open().await;
    let mut events = stage.hub.events().subscribe(LOCAL, None);
    let mut said = Vec::new();
    let mut secrets: Vec<Secret> =
        vec![PASSWORD.into(), "canary-that-is-wrong".into(), stage.hub.identity().process_token()];
    let link = stage.hub.identity().create_login_link().await.unwrap().unwrap();
    let by_link = stage.hub.identity().redeem_login_link(&link, &local_browser()).await.unwrap();
    let carol = stage.hub.identity().add_user(ADA, "canary-name").await.unwrap();
    let set = stage.hub.identity().set_password(ADA, carol.id, &PASSWORD.into(), ChangedBy::Operator).await;
    let wrong = stage.hub.identity().log_in(LOCAL, "canary-name", &secrets[1], &local_browser()).await;
    let once_more = stage.hub.identity().redeem_login_link(&link, &local_browser()).await;
    let signed_in =
        stage.hub.identity().log_in(LOCAL, "canary-name", &PASSWORD.into(), &local_browser()).await.unwrap();
    stage.advance(60);
    let session = stage.hub.identity().session(&signed_in.cookie, HOST).await;
    let agent = stage.agent(ADA, "helper").await;
    let issued = stage.hub.identity().issue_token(ADA, Subject::Agent(agent), "a", None).await.unwrap();
    let own = stage.hub.identity().issue_token(ADA, ADA.subject(), "own", None).await.unwrap();
    let listed = stage.hub.identity().tokens(ADA, Subject::Agent(agent)).await;
    let refused = stage.hub.identity().authenticate(&format!("{}0", own.0.expose())).await;
    said.push(format!(
        "{by_link:?} {carol:?} {set:?} {wrong:?} {once_more:?} {signed_in:?} {session:?} {issued:?} {own:?}"
    ));
    said.push(format!(
        "{listed:?} {refused:?} {:?} {}",
        stage.hub.identity().users(ADA).await,
        json!(listed.as_ref().unwrap())
    ));
    said.push(format!("{} {} {}", wrong.unwrap_err(), once_more.unwrap_err(), refused.unwrap_err()));
    let short = stage
        .hub
        .identity()
        .set_password(ADA, carol.id, &"canary!".into(), ChangedBy::Operator)
        .await
        .unwrap_err();
    said.push(format!("{short} {short:?}"));
    stage.hub.identity().log_out(&signed_in.cookie).await.unwrap();
    stage.hub.events().publish(LOCAL, NewEvent::new("last", json!({})));
    loop {
        let event = next(&mut events).await;
        said.push(format!("{event:?}"));
        if event.kind == "last" {
            break;
        }
    }
    let rows = stage.store.audit_entries(LOCAL, 0, 500).await.unwrap();
    assert!(rows.len() > 5);
    said.push(format!("{rows:?}"));
    secrets.extend([
        link,
        by_link.cookie,
        by_link.csrf,
        signed_in.cookie,
        signed_in.csrf,
        issued.0,
        own.0,
        "canary!".into(),
    ]);
    // The random part of a token is a secret by itself.
    let parts = secrets.iter().filter_map(|secret| secret.expose().split('_').nth(2)).map(Secret::from);
    let parts: Vec<_> = parts.collect();
    assert_eq!(parts.len(), 3);
    secrets.extend(parts);
    let mut files = vec![("output".to_owned(), said.concat().into_bytes())];
    for file in std::fs::read_dir(stage.place.path()).unwrap() {
        let path = file.unwrap().path();
        files.push((path.display().to_string(), std::fs::read(path).unwrap()));
    }
    assert!(files.iter().any(|(name, _)| name.ends_with("hub.db-wal")));
    let holding = files.iter().filter(|(_, bytes)| contains(bytes, "canary-name")).count();
    assert!(holding >= 2, "the search finds plain values, so it would find secrets");
    for (name, bytes) in &files {
        for (index, secret) in secrets.iter().enumerate() {
            assert!(!contains(bytes, secret.expose()), "secret {index} in {name}");
        }
    }
}
