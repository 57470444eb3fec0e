//! Contract of every store. Each test has a second tenant with the same ids, which must see no data of the first. A new
//! database must pass the same tests.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use jiff::Timestamp;
use linchpin_hub_core::audit::{AuditEntry, AuditSigner, ChainHead, ChainVerifier};
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{ApprovalId, CallId, ServerId, TenantId};
use linchpin_hub_core::rate_limit::RateLimit;
use linchpin_hub_core::store::{
    Approval, ApprovalFilter, ApprovalStatus, AuditFilter, Batch, CachedStore, CallFilter, CallOutcome,
    CallRecord, CallStatus, CountedCalls, Document, DocumentKey, DocumentKind, PageRequest, Store,
    StoreChange, StoredDocument,
};
use linchpin_hub_store::{Postgres, Sqlite};
use serde_json::{Value, json};
use tempfile::TempDir;

const ADA: TenantId = TenantId::from_u128(1);
const BOB: TenantId = TenantId::from_u128(2);

/// Opens or creates the store of a folder.
trait Open: AsyncFn(&TempDir) -> Arc<dyn Store> {}

impl<F: AsyncFn(&TempDir) -> Arc<dyn Store>> Open for F {}

async fn sqlite(folder: &TempDir) -> Arc<dyn Store> {
    Arc::new(Sqlite::open(&folder.path().join("hub.db")).unwrap())
}

async fn cached(folder: &TempDir) -> Arc<dyn Store> {
    Arc::new(CachedStore::new(sqlite(folder).await))
}

/// The folder contains the name of the database.
async fn postgres(folder: &TempDir) -> Arc<dyn Store> {
    let (name, server) = (folder.path().join("database"), test_postgres::server());
    if !name.exists() {
        std::fs::write(&name, server.create_database()).unwrap();
    }
    Arc::new(Postgres::open(&server.url(&std::fs::read_to_string(name).unwrap())).await.unwrap())
}

/// Defines every test for every store: a new database is one more name in the list.
macro_rules! contract {
    ($stores:tt, $($test:ident),*) => { $( contract!(@ $test, $stores); )* };
    (@ $test:ident, [$($store:ident),*]) => {
        mod $test {
            $(
                #[tokio::test]
                async fn $store() {
                    super::$test(super::$store).await;
                }
            )*
        }
    };
}

contract!(
    [sqlite, cached, postgres],
    documents_are_kept_changed_and_forgotten,
    what_belongs_to_something_comes_and_goes_with_it,
    a_name_that_is_in_use_is_refused_where_it_must_be_unused,
    what_proves_who_asks_is_found_without_its_tenant_and_nothing_else_is,
    lists_come_in_pages,
    a_batch_is_done_whole_or_not_at_all,
    a_call_goes_one_way_only,
    calls_are_found_by_what_they_are,
    an_approval_is_given_once_and_used_once,
    what_expires_can_only_be_said_to_have,
    the_audit_is_one_chain_per_tenant,
    what_may_be_had_is_counted,
    what_was_decided_by_must_be_the_same,
    old_calls_are_deleted_some_at_a_time,
    only_so_many_calls_wait_for_an_approval,
    calls_of_a_hub_that_is_gone_are_found,
    entries_leave_when_they_are_sealed,
    entries_are_found_by_filter,
    everything_is_there_again
);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn document(kind: DocumentKind, id: &str, body: Value) -> Document {
    Document { key: DocumentKey::new(kind, id), name: None, parent: None, body, code: None }
}

fn put(document: &Document, version: u64) -> Batch {
    Batch::new().change(StoreChange::Put { document: document.clone(), version })
}

fn call(id: u128, status: CallStatus) -> CallRecord {
    CallRecord {
        id: CallId::from_u128(id),
        server: ServerId::from_u128(id % 3),
        tool: format!("tool-{}", id % 2),
        subject: format!("agent:{}", id % 2),
        status,
        digest: Digest::of("arguments").part(id.to_string()).finish(),
        arguments: Some(vec![1, 2, 3]),
        result: None,
        error: None,
        created: at(i64::try_from(id).unwrap()),
        started: None,
        completed: None,
    }
}

fn approval(id: u128) -> Approval {
    Approval {
        id: ApprovalId::from_u128(id),
        call: CallId::from_u128(id),
        digest: Digest::of("approval").finish(),
        decision: ApprovalStatus::Open,
        decided_by: None,
        created: at(0),
        expires: at(60),
        decided: None,
    }
}

fn page(limit: usize, after: Option<String>) -> PageRequest {
    PageRequest { after, limit }
}

async fn code(store: &dyn Store, tenant: TenantId, batch: Batch) -> &'static str {
    store.commit(tenant, batch).await.map_or_else(|error| error.code(), |()| "done")
}

async fn documents_are_kept_changed_and_forgotten(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    let first = document(DocumentKind::Server, "a", json!({"n": 1})).with_name("files").with_parent("parent");
    store.commit(ADA, put(&first, 0)).await.unwrap();
    let found = store.document(ADA, &first.key).await.unwrap();
    assert_eq!(found, Some(StoredDocument { document: first.clone(), version: 1 }));
    assert_eq!(store.document_by_name(ADA, DocumentKind::Server, "files").await.unwrap(), found);
    // Not found in another tenant, as another kind, or by another name.
    assert_eq!(store.document(BOB, &first.key).await.unwrap(), None);
    assert_eq!(store.document_by_name(BOB, DocumentKind::Server, "files").await.unwrap(), None);
    assert_eq!(store.document_by_name(ADA, DocumentKind::Agent, "files").await.unwrap(), None);
    assert_eq!(store.document(ADA, &DocumentKey::new(DocumentKind::Tool, "a")).await.unwrap(), None);
    // An existing document, or one with another version, is not overwritten.
    assert_eq!(code(&*store, ADA, put(&first, 0)).await, "version_conflict");
    let second = Document { body: json!({"n": 2}), ..first.clone() };
    assert_eq!(code(&*store, ADA, put(&second, 2)).await, "version_conflict");
    assert_eq!(code(&*store, BOB, put(&second, 1)).await, "version_conflict");
    assert_eq!(code(&*store, ADA, put(&second, 1)).await, "done");
    assert_eq!(
        store.document(ADA, &first.key).await.unwrap(),
        Some(StoredDocument { document: second, version: 2 })
    );
    // A name is unique in a tenant.
    let other = document(DocumentKind::Server, "b", json!({})).with_name("files");
    let error = store.commit(ADA, put(&other, 0)).await.unwrap_err();
    assert_eq!(error.to_string(), "the name `files` is used by another server: choose another name");
    assert_eq!(code(&*store, BOB, put(&other, 0)).await, "done");
    // The name is free again after the removal.
    let gone = || Batch::new().change(StoreChange::Delete(first.key.clone()));
    assert_eq!(code(&*store, BOB, gone()).await, "not_found");
    assert_eq!(code(&*store, ADA, gone()).await, "done");
    assert_eq!(code(&*store, ADA, gone()).await, "not_found");
    assert_eq!(code(&*store, ADA, put(&other, 0)).await, "done");
    assert_eq!(store.tenants().await.unwrap(), [ADA, BOB]);
}

async fn a_name_that_is_in_use_is_refused_where_it_must_be_unused(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    let unused = |name: &str| {
        let (kind, name) = (DocumentKind::WaitingRequest, name.to_owned());
        Batch::new().change(StoreChange::RequireUnusedName { kind, name })
    };
    let waiting = document(DocumentKind::WaitingRequest, "1", json!({})).with_name("digest");
    assert_eq!(code(&*store, ADA, unused("digest")).await, "done");
    store.commit(ADA, put(&waiting, 0)).await.unwrap();
    let with_call =
        |name| unused(name).change(StoreChange::InsertCall(Box::new(call(1, CallStatus::Running))));
    assert_eq!(code(&*store, ADA, with_call("digest")).await, "name_taken");
    assert_eq!(
        store.call(ADA, call(1, CallStatus::Running).id).await.unwrap(),
        None,
        "nothing of the batch is stored"
    );
    assert_eq!(code(&*store, BOB, unused("digest")).await, "done", "the name belongs to another tenant");
    assert_eq!(code(&*store, ADA, with_call("other")).await, "done");
    assert!(store.call(ADA, call(1, CallStatus::Running).id).await.unwrap().is_some());
    // Several batches at once, which are grouped: only that with the name fails.
    let [first, second, third] = [2, 3, 4].map(|number| {
        let name = if number == 3 { "digest" } else { "other" };
        let (store, call) = (store.clone(), call(number, CallStatus::Running));
        let batch = unused(name).change(StoreChange::InsertCall(Box::new(call)));
        async move { code(&*store, ADA, batch).await }
    });
    let codes = tokio::join!(first, second, third);
    assert_eq!(codes, ("done", "name_taken", "done"));
}

async fn what_belongs_to_something_comes_and_goes_with_it(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    let server = document(DocumentKind::Server, "s", json!({}));
    let part = |kind, id: &str, parent: &str| {
        document(kind, id, json!({})).with_parent(parent).with_name(format!("{id} of it"))
    };
    let with_server = |part: &Document| {
        let put = StoreChange::Put { document: part.clone(), version: 0 };
        Batch::new().change(StoreChange::RequireExists(server.key.clone())).change(put)
    };
    let first = part(DocumentKind::Tool, "1", "s");
    store.commit(BOB, put(&server, 0)).await.unwrap();
    assert_eq!(code(&*store, ADA, with_server(&first)).await, "not_found", "it belongs to another tenant");
    assert_eq!(store.document(ADA, &first.key).await.unwrap(), None);
    store.commit(ADA, put(&server, 0)).await.unwrap();
    assert_eq!(code(&*store, ADA, with_server(&first)).await, "done");
    let others = [
        part(DocumentKind::Tool, "2", "other"),
        part(DocumentKind::Contact, "3", "s"),
        part(DocumentKind::Tool, "4", "s"),
    ];
    for other in &others {
        store.commit(ADA, put(other, 0)).await.unwrap();
    }
    store.commit(BOB, put(&first, 0)).await.unwrap();
    for part in others.iter().chain([&first]) {
        assert!(store.document(ADA, &part.key).await.unwrap().is_some()); // from here on it may be cached
    }
    let gone = || {
        let parts = StoreChange::DeleteChildren { kind: DocumentKind::Tool, parent: "s".to_owned() };
        Batch::new().change(StoreChange::Delete(server.key.clone())).change(parts)
    };
    assert_eq!(code(&*store, ADA, gone()).await, "done");
    for part in [&first, &others[2]] {
        assert_eq!(store.document(ADA, &part.key).await.unwrap(), None);
        assert_eq!(
            store.document_by_name(ADA, DocumentKind::Tool, part.name.as_deref().unwrap()).await.unwrap(),
            None
        );
    }
    for part in &others[..2] {
        assert!(store.document(ADA, &part.key).await.unwrap().is_some(), "{part:?}");
    }
    assert!(store.document(BOB, &first.key).await.unwrap().is_some());
    assert_eq!(code(&*store, ADA, with_server(&first)).await, "not_found");
    assert_eq!(code(&*store, ADA, gone()).await, "not_found", "the rest of the batch is not applied");
}

async fn what_proves_who_asks_is_found_without_its_tenant_and_nothing_else_is(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    for kind in DocumentKind::ALL {
        let proves = matches!(kind, DocumentKind::Token | DocumentKind::Session);
        let of_ada = document(kind, "1", json!("ada")).with_parent("owner");
        let of_bob = Document { key: DocumentKey::new(kind, "2"), body: json!("bob"), ..of_ada.clone() };
        store.commit(ADA, put(&of_ada, 0)).await.unwrap();
        store.commit(BOB, put(&of_bob, 0)).await.unwrap();
        for (tenant, document) in [(ADA, &of_ada), (BOB, &of_bob)] {
            let expected =
                proves.then(|| (tenant, StoredDocument { document: document.clone(), version: 1 }));
            assert_eq!(store.document_in_any_tenant(&document.key).await.unwrap(), expected, "{kind:?}");
        }
        assert_eq!(store.document_in_any_tenant(&DocumentKey::new(kind, "3")).await.unwrap(), None);
        // Ids of these kinds are unique across tenants, so that an id identifies its tenant.
        let expected = if proves { "id_taken" } else { "done" };
        assert_eq!(code(&*store, BOB, put(&of_ada, 0)).await, expected, "{kind:?}");
        assert_eq!(
            store.document_in_any_tenant(&of_ada.key).await.unwrap().map(|(tenant, _)| tenant),
            proves.then_some(ADA)
        );
        // A removed document is not found any more.
        let gone = Batch::new().change(StoreChange::Delete(of_ada.key.clone()));
        assert_eq!(code(&*store, ADA, gone).await, "done");
        assert_eq!(store.document_in_any_tenant(&of_ada.key).await.unwrap(), None);
    }
}

async fn lists_come_in_pages(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    for number in 0..25 {
        let parent = if number % 2 == 0 { "even" } else { "odd" };
        let tool = document(DocumentKind::Tool, &format!("{number:02}"), json!(number)).with_parent(parent);
        for tenant in [ADA, BOB] {
            store.commit(tenant, put(&tool, 0)).await.unwrap();
        }
    }
    for (parent, count) in [(None, 25), (Some("even"), 13), (Some("odd"), 12), (Some("none"), 0)] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let found = store.documents(ADA, DocumentKind::Tool, parent, &page(5, after)).await.unwrap();
            assert!(found.items.len() <= 5);
            seen.extend(found.items.into_iter().map(|item| item.document.key.id));
            after = found.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), count, "{parent:?}");
        assert!(seen.is_sorted());
    }
    assert_eq!(store.documents(ADA, DocumentKind::Agent, None, &page(5, None)).await.unwrap().items, []);
    let all = store.documents(ADA, DocumentKind::Tool, None, &page(usize::MAX, None)).await.unwrap();
    assert_eq!((all.items.len(), all.next), (25, None));
}

async fn a_batch_is_done_whole_or_not_at_all(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    let (one, two) =
        (document(DocumentKind::Agent, "1", json!(1)), document(DocumentKind::Agent, "2", json!(2)));
    store.commit(ADA, put(&one, 0)).await.unwrap();
    let batch = || {
        put(&two, 0)
            .change(StoreChange::InsertCall(Box::new(call(1, CallStatus::Running))))
            .audit(AuditEntry::new(at(0), "user:1", "agent.added"))
    };
    let failing = batch().change(StoreChange::Put { document: one.clone(), version: 0 });
    assert_eq!(code(&*store, ADA, failing).await, "version_conflict");
    assert_eq!(store.document(ADA, &two.key).await.unwrap(), None);
    assert_eq!(store.call(ADA, CallId::from_u128(1)).await.unwrap(), None);
    assert_eq!(store.audit_head(ADA).await.unwrap(), ChainHead::start(ADA));
    assert_eq!(code(&*store, ADA, batch()).await, "done");
    assert_eq!(store.audit_head(ADA).await.unwrap().number, 1);
    // Concurrent batches: some are committed, the others change nothing.
    let mut all = tokio::task::JoinSet::new();
    for number in 0..300 {
        let store = store.clone();
        all.spawn(async move {
            let id = format!("x{}", number % 100);
            let batch = put(&document(DocumentKind::User, &id, json!(number)), 0);
            code(&*store, ADA, batch.audit(AuditEntry::new(at(number), "hub", "user.added"))).await
        });
    }
    let codes = all.join_all().await;
    assert_eq!(codes.iter().filter(|code| **code == "done").count(), 100);
    assert_eq!(store.audit_head(ADA).await.unwrap().number, 101);
}

async fn a_call_goes_one_way_only(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    let pending = call(1, CallStatus::Pending);
    let open = |call: &CallRecord| Batch::new().change(StoreChange::InsertCall(Box::new(call.clone())));
    store.commit(ADA, open(&pending)).await.unwrap();
    store.commit(BOB, open(&pending)).await.unwrap();
    assert_eq!(store.call(ADA, pending.id).await.unwrap(), Some(pending.clone()));
    assert_eq!(code(&*store, ADA, open(&pending)).await, "call_exists");
    let edit = |digest| {
        Batch::new().change(StoreChange::EditArguments { call: pending.id, digest, arguments: Some(vec![9]) })
    };
    let other = Digest::of("other").finish();
    assert_eq!(code(&*store, ADA, edit(other)).await, "done");
    let start = || Batch::new().change(StoreChange::StartCall { call: pending.id, at: at(5) });
    assert_eq!(code(&*store, ADA, start()).await, "done");
    let error = store.commit(ADA, start()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("call {} is already running", pending.id));
    assert_eq!(code(&*store, ADA, edit(other)).await, "call_state_conflict");
    let outcome = CallOutcome {
        status: CallStatus::Success,
        result: Some(vec![7]),
        error: None,
        at: at(6),
        retains_arguments: true,
    };
    let finish =
        || Batch::new().change(StoreChange::FinishCall { call: pending.id, outcome: outcome.clone() });
    assert_eq!(code(&*store, ADA, finish()).await, "done");
    assert_eq!(code(&*store, ADA, finish()).await, "call_state_conflict");
    assert_eq!(code(&*store, ADA, start()).await, "call_state_conflict");
    let found = store.call(ADA, pending.id).await.unwrap().unwrap();
    let expected = CallRecord {
        status: CallStatus::Success,
        digest: other,
        arguments: Some(vec![9]),
        result: Some(vec![7]),
        started: Some(at(5)),
        completed: Some(at(6)),
        ..pending.clone()
    };
    assert_eq!(found, expected);
    assert_eq!(
        store.call(BOB, pending.id).await.unwrap().unwrap().status,
        CallStatus::Pending,
        "this is another call"
    );
    let missing = Batch::new().change(StoreChange::StartCall { call: CallId::from_u128(9), at: at(0) });
    assert_eq!(code(&*store, ADA, missing).await, "not_found");
}

async fn calls_are_found_by_what_they_are(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    for number in 0..12 {
        let status = CallStatus::ALL[usize::try_from(number).unwrap() % CallStatus::ALL.len()];
        for tenant in [ADA, BOB] {
            store
                .commit(tenant, Batch::new().change(StoreChange::InsertCall(Box::new(call(number, status)))))
                .await
                .unwrap();
        }
    }
    let find = async |filter: CallFilter| {
        let found = store.calls(ADA, &filter, &page(100, None)).await.unwrap();
        found.items.into_iter().map(|call| call.created.as_second() - 1_800_000_000).collect::<Vec<_>>()
    };
    let none = CallFilter::default;
    assert_eq!(find(none()).await, (0..12).rev().collect::<Vec<_>>(), "the newest first");
    assert_eq!(find(CallFilter { server: Some(ServerId::from_u128(1)), ..none() }).await, [10, 7, 4, 1]);
    assert_eq!(find(CallFilter { tool: Some("tool-1".into()), ..none() }).await, [11, 9, 7, 5, 3, 1]);
    assert_eq!(find(CallFilter { subject: Some("agent:0".into()), ..none() }).await, [10, 8, 6, 4, 2, 0]);
    assert_eq!(find(CallFilter { status: Some(CallStatus::Pending), ..none() }).await, [7, 0]);
    let between = CallFilter { since: Some(at(3)), until: Some(at(6)), ..none() };
    assert_eq!(find(between).await, [5, 4, 3]);
    let both = CallFilter { server: Some(ServerId::from_u128(1)), tool: Some("tool-1".into()), ..none() };
    assert_eq!(find(both).await, [7, 1]);
    let first = store.calls(ADA, &none(), &page(5, None)).await.unwrap();
    let whole = store.call(ADA, first.items[0].id).await.unwrap().unwrap();
    assert!(whole.arguments.is_some());
    assert_eq!(
        first.items[0],
        CallRecord { arguments: None, result: None, ..whole },
        "lists have no arguments and results"
    );
    let second = store.calls(ADA, &none(), &page(5, first.next)).await.unwrap();
    assert_eq!(
        second.items.iter().map(|call| call.id).collect::<Vec<_>>(),
        [6, 5, 4, 3, 2].map(CallId::from_u128)
    );
    assert_eq!(store.calls(TenantId::from_u128(3), &none(), &page(5, None)).await.unwrap().items, []);
}

async fn an_approval_is_given_once_and_used_once(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    let own = approval(1).digest;
    for tenant in [ADA, BOB] {
        let asked = Batch::new().change(StoreChange::InsertCall(Box::new(call(1, CallStatus::Pending))));
        store.commit(tenant, asked.change(StoreChange::InsertApproval(approval(1)))).await.unwrap();
    }
    let decide = |decision, second| {
        let by = "user:1".to_owned();
        Batch::new().change(StoreChange::DecideApproval {
            approval: ApprovalId::from_u128(1),
            decision,
            decided_by: by,
            at: at(second),
            digest: None,
        })
    };
    let use_up = |digest, second| {
        Batch::new().change(StoreChange::ConsumeApproval {
            approval: ApprovalId::from_u128(1),
            digest,
            at: at(second),
        })
    };
    assert_eq!(code(&*store, ADA, use_up(own, 1)).await, "approval_decided", "not approved yet");
    assert_eq!(code(&*store, ADA, decide(ApprovalStatus::Approved, 60)).await, "approval_expired");
    assert_eq!(code(&*store, ADA, decide(ApprovalStatus::Approved, 1)).await, "done");
    assert_eq!(code(&*store, ADA, decide(ApprovalStatus::Denied, 2)).await, "approval_decided");
    assert_eq!(code(&*store, ADA, use_up(Digest::of("other").finish(), 3)).await, "approval_mismatch");
    assert_eq!(code(&*store, ADA, use_up(own, 60)).await, "approval_expired");
    // A thousand concurrent attempts.
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let (store, batch) = (store.clone(), use_up(own, 3));
        all.spawn(async move { code(&*store, ADA, batch).await });
    }
    let codes = all.join_all().await;
    assert_eq!(codes.iter().filter(|code| **code == "done").count(), 1);
    assert_eq!(code(&*store, ADA, use_up(own, 3)).await, "approval_decided");
    let found = store.approval(ADA, ApprovalId::from_u128(1)).await.unwrap().unwrap();
    assert_eq!((found.decision, found.decided_by.as_deref()), (ApprovalStatus::Used, Some("user:1")));
    // The approval of the other tenant is unchanged. It is decided with edited arguments.
    let find = |decision| ApprovalFilter { decision: Some(decision), call: None };
    assert_eq!(
        store.approvals(BOB, &find(ApprovalStatus::Open), &page(9, None)).await.unwrap().items,
        [approval(1)]
    );
    assert_eq!(store.approvals(ADA, &find(ApprovalStatus::Open), &page(9, None)).await.unwrap().items, []);
    let other = Digest::of("edited").finish();
    let edited = StoreChange::DecideApproval {
        approval: ApprovalId::from_u128(1),
        decision: ApprovalStatus::Approved,
        decided_by: "user:2".into(),
        at: at(1),
        digest: Some(other),
    };
    assert_eq!(code(&*store, BOB, Batch::new().change(edited)).await, "done");
    assert_eq!(code(&*store, BOB, use_up(own, 2)).await, "approval_mismatch");
    assert_eq!(code(&*store, BOB, use_up(other, 2)).await, "done");
}

async fn what_expires_can_only_be_said_to_have(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    let asked = Batch::new().change(StoreChange::InsertCall(Box::new(call(1, CallStatus::Pending))));
    store.commit(ADA, asked.change(StoreChange::InsertApproval(approval(1)))).await.unwrap();
    let expire = || StoreChange::DecideApproval {
        approval: ApprovalId::from_u128(1),
        decision: ApprovalStatus::Expired,
        decided_by: "hub".into(),
        at: at(100),
        digest: None,
    };
    assert_eq!(code(&*store, ADA, Batch::new().change(expire())).await, "done");
    assert_eq!(code(&*store, ADA, Batch::new().change(expire())).await, "approval_decided");
}

async fn the_audit_is_one_chain_per_tenant(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let (store, signer) = (open(&place).await, AuditSigner::new(&[1; 32]));
    for number in 0..40 {
        let tenant = if number % 4 == 0 { BOB } else { ADA };
        let entry = AuditEntry::new(at(number), "user:1", "call.intent").with("call", number);
        store.commit(tenant, Batch::new().audit(entry.clone()).audit(entry)).await.unwrap();
    }
    let checkpoint = signer.sign(ADA, store.audit_head(ADA).await.unwrap(), at(50));
    store.commit(ADA, Batch::new().change(StoreChange::InsertCheckpoint(checkpoint.clone()))).await.unwrap();
    drop(store);
    let store = open(&place).await;
    for (tenant, count) in [(ADA, 60), (BOB, 20), (TenantId::from_u128(3), 0)] {
        let kept = store.checkpoint(tenant).await.unwrap();
        assert_eq!(kept, Some(checkpoint.clone()).filter(|_| tenant == ADA));
        assert!(kept.iter().all(|kept| kept.is_signed_by(signer.public_key())));
        let mut check = ChainVerifier::new(tenant, kept.map(|kept| kept.head));
        let mut after = 0;
        loop {
            let rows = store.audit_entries(tenant, after, 7).await.unwrap();
            let Some(last) = rows.last() else { break };
            after = last.number;
            for row in &rows {
                check.verify_entry(row).unwrap();
            }
        }
        assert_eq!(check.finish().unwrap().number, count);
        assert_eq!(store.audit_head(tenant).await.unwrap().number, count);
    }
}

async fn what_was_decided_by_must_be_the_same(open: impl Open) {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let put = |id: &str, version| {
        Batch::new()
            .change(StoreChange::Put { document: document(DocumentKind::Agent, id, json!(version)), version })
    };
    let key = |id: &str| DocumentKey::new(DocumentKind::Agent, id);
    let same = async |tenant, all: &[(&str, u64)]| {
        let all = all.iter().map(|(id, version)| (key(id), *version)).collect();
        store
            .commit(tenant, Batch::new().change(StoreChange::RequireVersions(all)))
            .await
            .map_err(|error| error.code())
    };
    for batch in [put("a", 0), put("b", 0), put("b", 1)] {
        store.commit(ADA, batch).await.unwrap();
    }
    assert_eq!(same(ADA, &[("a", 1), ("b", 2)]).await, Ok(()));
    for wrong in [&[("a", 1), ("b", 1)][..], &[("b", 2), ("a", 2)], &[("c", 1)], &[("c", 0)]] {
        assert_eq!(same(ADA, wrong).await, Err("version_conflict"), "{wrong:?}");
    }
    assert_eq!(same(BOB, &[("a", 1)]).await, Err("version_conflict"));
}

async fn what_may_be_had_is_counted(open: impl Open) {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let take = |of: &str, second| StoreChange::ConsumeRate {
        bucket: of.into(),
        rate: RateLimit { burst: 2, per_minute: 60 },
        at: at(second),
    };
    let once = |of, second| Batch::new().change(take(of, second));
    for _ in 0..2 {
        store.commit(ADA, once("a", 0)).await.unwrap();
    }
    let error = store.commit(ADA, once("a", 0)).await.unwrap_err();
    let wait = Some(std::time::Duration::from_secs(1));
    assert_eq!((error.code(), error.field(), error.retry_after()), ("rate_limited", Some("a"), wait));
    store.commit(BOB, once("a", 0)).await.unwrap();
    // If the second limit is exceeded, the first one is not charged.
    let both = Batch::new().change(take("b", 0)).change(take("a", 0));
    assert_eq!(store.commit(ADA, both).await.unwrap_err().field(), Some("a"));
    store.commit(ADA, once("b", 0).change(take("b", 0))).await.unwrap();
    drop(store);
    let store = open(&folder).await;
    assert!(store.commit(ADA, once("a", 0)).await.is_err(), "the bucket is persistent");
    store.commit(ADA, once("a", 1)).await.unwrap();
    store
        .commit(ADA, Batch::new().change(StoreChange::PruneCalls { before: at(2), max_calls: 100 }))
        .await
        .unwrap();
    store.commit(ADA, once("a", 1).change(take("a", 1))).await.unwrap();

    // All calls have the same server and subject.
    let running = |id: u128| CallRecord { started: Some(at(1)), ..call(6 * id + 1, CallStatus::Running) };
    let room = |of: CountedCalls, most, id| {
        Batch::new()
            .change(StoreChange::RequireConcurrency { scope: of, max_calls: most })
            .change(StoreChange::InsertCall(Box::new(running(id))))
    };
    let (server, subject) =
        (CountedCalls::Server(running(1).server), CountedCalls::Subject(running(1).subject));
    store.commit(ADA, room(server.clone(), 1, 1)).await.unwrap();
    store.commit(BOB, room(server.clone(), 1, 1)).await.unwrap();
    store.commit(ADA, room(CountedCalls::Server(ServerId::from_u128(99)), 1, 2)).await.unwrap();
    store.commit(ADA, room(CountedCalls::Subject("user:99".into()), 1, 3)).await.unwrap();
    for of in [server.clone(), subject] {
        assert_eq!(store.commit(ADA, room(of, 3, 4)).await.unwrap_err().code(), "too_many_calls");
    }
    assert_eq!(store.call(ADA, running(4).id).await.unwrap(), None);
    let outcome = CallOutcome {
        status: CallStatus::Success,
        result: None,
        error: None,
        at: at(2),
        retains_arguments: true,
    };
    let done = StoreChange::FinishCall { call: running(3).id, outcome };
    store.commit(ADA, Batch::new().change(done)).await.unwrap();
    store.commit(ADA, room(server, 3, 4)).await.unwrap();
}

async fn old_calls_are_deleted_some_at_a_time(open: impl Open) {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let mut batch = Batch::new();
    for id in 1..=5 {
        let call =
            CallRecord { completed: Some(at(i64::try_from(id).unwrap())), ..call(id, CallStatus::Success) };
        batch = batch.change(StoreChange::InsertCall(Box::new(call)));
    }
    batch = batch.change(StoreChange::InsertCall(Box::new(call(6, CallStatus::Running))));
    store.commit(ADA, batch.clone()).await.unwrap();
    store.commit(BOB, batch).await.unwrap();
    let forget = || Batch::new().change(StoreChange::PruneCalls { before: at(5), max_calls: 3 });
    for left in [vec![6, 5, 4], vec![6, 5], vec![6, 5]] {
        store.commit(ADA, forget()).await.unwrap();
        let found = store.calls(ADA, &CallFilter::default(), &page(10, None)).await.unwrap().items;
        assert_eq!(
            found.iter().map(|call| call.id).collect::<Vec<_>>(),
            left.iter().map(|id| CallId::from_u128(*id)).collect::<Vec<_>>()
        );
        assert_eq!(store.has_calls_before(ADA, at(5)).await.unwrap(), left.contains(&4));
    }
    assert!(store.has_calls_before(ADA, at(6)).await.unwrap());
    assert!(store.has_calls_before(BOB, at(5)).await.unwrap());
}

async fn only_so_many_calls_wait_for_an_approval(open: impl Open) {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let ask = |id: u128, subject: &str, status| {
        let call = CallRecord { subject: subject.to_owned(), ..call(id, status) };
        let room = StoreChange::RequireConcurrency {
            scope: CountedCalls::Pending(subject.to_owned()),
            max_calls: 3,
        };
        Batch::new()
            .change(room)
            .change(StoreChange::InsertCall(Box::new(call)))
            .change(StoreChange::InsertApproval(approval(id)))
    };
    // Concurrent batches: the limit is checked at the commit.
    let asks = (1..=8).map(|id| {
        let (store, batch) = (store.clone(), ask(id, "agent:1", CallStatus::Pending));
        async move { code(&*store, ADA, batch).await }
    });
    let mut set = tokio::task::JoinSet::new();
    asks.for_each(|ask| drop(set.spawn(ask)));
    let mut codes = set.join_all().await;
    codes.sort_unstable();
    assert_eq!(codes, [vec!["done"; 3], vec!["too_many_pending_approvals"; 5]].concat());
    // Other subjects, other tenants and running calls are not counted.
    assert_eq!(code(&*store, ADA, ask(11, "agent:2", CallStatus::Pending)).await, "done");
    assert_eq!(code(&*store, BOB, ask(12, "agent:1", CallStatus::Pending)).await, "done");
    let filter = CallFilter { subject: Some("agent:1".into()), ..CallFilter::default() };
    let first = store.calls(ADA, &filter, &page(1, None)).await.unwrap().items[0].id;
    store.commit(ADA, Batch::new().change(StoreChange::StartCall { call: first, at: at(1) })).await.unwrap();
    assert_eq!(code(&*store, ADA, ask(13, "agent:1", CallStatus::Pending)).await, "done");
    assert_eq!(
        code(&*store, ADA, ask(14, "agent:1", CallStatus::Pending)).await,
        "too_many_pending_approvals"
    );
}

async fn calls_of_a_hub_that_is_gone_are_found(open: impl Open) {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    for (id, status) in [
        (1, CallStatus::Running),
        (2, CallStatus::Pending),
        (3, CallStatus::Pending),
        (4, CallStatus::Success),
    ] {
        store
            .commit(ADA, Batch::new().change(StoreChange::InsertCall(Box::new(call(id, status)))))
            .await
            .unwrap();
    }
    store
        .commit(ADA, Batch::new().change(StoreChange::StartCall { call: CallId::from_u128(3), at: at(1) }))
        .await
        .unwrap();
    drop(store);
    let store = open(&folder).await;
    let found = async |tenant| {
        let mut found: Vec<_> =
            store.abandoned_calls(tenant).await.unwrap().iter().map(|call| call.id).collect();
        found.sort_unstable();
        found
    };
    assert_eq!(found(ADA).await, [CallId::from_u128(1), CallId::from_u128(3)]);
    assert_eq!(found(BOB).await, []);
}

async fn entries_are_found_by_filter(open: impl Open) {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    for tenant in [ADA, BOB] {
        for (number, (actor, action)) in [
            ("user:1", "call.intent"),
            ("hub", "call.finished"),
            ("agent:1", "call.intent"),
            ("agent:1", "callback"),
            ("user:1", "server.added"),
        ]
        .into_iter()
        .enumerate()
        {
            let entry = AuditEntry::new(at(10 * i64::try_from(number).unwrap()), actor, action);
            store.commit(tenant, Batch::new().audit(entry)).await.unwrap();
        }
    }
    let found = async |filter: AuditFilter, numbers, limit| {
        let rows = store.find_audit_entries(ADA, &filter, numbers, limit).await.unwrap();
        rows.iter().map(|row| row.number).collect::<Vec<_>>()
    };
    let all = AuditFilter::default;
    let of = |actors: &[&str]| AuditFilter {
        actors: actors.iter().map(|&actor| actor.to_owned()).collect(),
        ..all()
    };
    let action = |action: &str| AuditFilter { action: Some(action.to_owned()), ..all() };
    for (filter, expected) in [
        (all(), vec![1, 2, 3, 4, 5]),
        (of(&["user:1"]), vec![1, 5]),
        (of(&["user:1", "agent:1"]), vec![1, 3, 4, 5]),
        (of(&["user:2"]), vec![]),
        (action("call.intent"), vec![1, 3]),
        (action("call."), vec![1, 2, 3]),
        (action("call"), vec![]),
        (AuditFilter { since: Some(at(20)), ..all() }, vec![3, 4, 5]),
        (AuditFilter { until: Some(at(20)), ..all() }, vec![1, 2]),
        (AuditFilter { since: Some(at(10)), until: Some(at(40)), ..of(&["agent:1"]) }, vec![3, 4]),
    ] {
        assert_eq!(found(filter.clone(), 1..=5, 10).await, expected, "{filter:?}");
    }
    assert_eq!(found(all(), 2..=4, 10).await, [2, 3, 4]);
    assert_eq!(found(all(), 1..=5, 2).await, [1, 2]);
    assert!(found(all(), 6..=9, 2).await.is_empty());
}

async fn entries_leave_when_they_are_sealed(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let (store, signer) = (open(&place).await, AuditSigner::new(&[1; 32]));
    for number in 0..10 {
        for tenant in [ADA, BOB] {
            let entry = AuditEntry::new(at(number), "user:1", "call.intent").with("call", number);
            store.commit(tenant, Batch::new().audit(entry)).await.unwrap();
            let checkpoint = signer.sign(tenant, store.audit_head(tenant).await.unwrap(), at(50));
            store
                .commit(tenant, Batch::new().change(StoreChange::InsertCheckpoint(checkpoint)))
                .await
                .unwrap();
        }
    }
    let rows = store.audit_entries(ADA, 0, 100).await.unwrap();
    let head = |number: usize| ChainHead { number: number as u64, hash: rows[number - 1].hash };
    let seal = |first, last| Batch::new().change(StoreChange::RemoveSealedEntries { first, last });
    let other = document(DocumentKind::Segment, "1", json!({}));
    for (first, last) in [
        (2, head(5)),
        (0, head(5)),
        (1, ChainHead { hash: rows[5].hash, ..head(5) }),
        (1, ChainHead { number: 11, ..head(10) }),
        (1, head(10)),
    ] {
        let batch = put(&other, 0).change(StoreChange::RemoveSealedEntries { first, last });
        assert_eq!(code(&*store, ADA, batch).await, "version_conflict", "{first} {last:?}");
    }
    assert_eq!(store.audit_entries(ADA, 0, 100).await.unwrap(), rows);
    assert_eq!(store.document(ADA, &other.key).await.unwrap(), None);
    assert_eq!(code(&*store, ADA, seal(1, head(5))).await, "done");
    assert_eq!(code(&*store, ADA, seal(1, head(5))).await, "version_conflict");
    assert_eq!(store.audit_entries(ADA, 0, 100).await.unwrap(), rows[5..]);
    assert_eq!(
        code(&*store, ADA, seal(6, head(9)).audit(AuditEntry::new(at(60), "hub", "audit.segment_sealed")))
            .await,
        "done"
    );
    assert_eq!(store.audit_entries(ADA, 0, 100).await.unwrap()[0], rows[9]);
    assert_eq!(store.audit_head(ADA).await.unwrap().number, 11);
    assert_eq!(store.checkpoint(ADA).await.unwrap().unwrap().head, head(10));
    assert_eq!(store.audit_entries(BOB, 0, 100).await.unwrap().len(), 10, "entries of another tenant stay");
}

async fn everything_is_there_again(open: impl Open) {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await;
    let one = document(DocumentKind::Lease, "theme", json!({"dark": true, "text": "é\u{0}\"\\"}));
    let batch = put(&one, 0)
        .change(StoreChange::InsertCall(Box::new(call(1, CallStatus::Pending))))
        .change(StoreChange::InsertApproval(approval(1)));
    store.commit(ADA, batch).await.unwrap();
    drop(store);
    let store = open(&place).await;
    assert_eq!(store.document(ADA, &one.key).await.unwrap().unwrap().document, one);
    assert_eq!(store.call(ADA, CallId::from_u128(1)).await.unwrap(), Some(call(1, CallStatus::Pending)));
    assert_eq!(store.approval(ADA, ApprovalId::from_u128(1)).await.unwrap(), Some(approval(1)));
}
