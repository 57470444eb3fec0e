//! Minimal scripted browser: follows redirects, stores cookies, and fills in and submits forms.

use std::collections::HashMap;

use http::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, Method, Request};
use linchpin::egress::{Body, Egress, Target};

use crate::TEST_TIMEOUT;

/// Maximum size of a page in bytes.
const MAX_PAGE_BYTES: usize = 1 << 20;
/// Maximum number of pages and redirects.
const MAX_PAGES: usize = 30;

/// User with an account, and the cookies of their browser by origin.
pub struct TestBrowser {
    account: &'static str,
    cookies: HashMap<String, HashMap<String, String>>,
    /// Visited URLs, without queries.
    pub visited: Vec<String>,
}

impl TestBrowser {
    /// Creates a browser without cookies.
    pub fn new(account: &'static str) -> Self {
        TestBrowser { account, cookies: HashMap::new(), visited: Vec::new() }
    }

    /// Opens a URL, follows redirects and submits forms. Returns the status and body of the last page.
    pub async fn open(&mut self, url: &str) -> (u16, String) {
        let (mut url, mut form) = (url.to_owned(), None);
        for _ in 0..MAX_PAGES {
            let (status, headers, page) = self.send(&url, form.take()).await;
            if let Some(place) = headers.get(LOCATION) {
                url = resolve_url(&url, place.to_str().unwrap());
            } else if let Some(action) = between(&page, " action=\"", "\"") {
                form = Some(self.filled_in(&page));
                url = resolve_url(&url, action);
            } else {
                return (status, page);
            }
        }
        panic!("too many pages: {:?}", self.visited);
    }

    fn filled_in(&self, page: &str) -> String {
        let prompt = between(page, "name=\"prompt\" value=\"", "\"").unwrap_or_default();
        let login = page.contains("name=\"login\"").then(|| format!("&login={}&password=any", self.account));
        format!("prompt={prompt}{}", login.unwrap_or_default())
    }

    async fn send(&mut self, url: &str, form: Option<String>) -> (u16, HeaderMap, String) {
        self.visited.push(url.split('?').next().unwrap().to_owned());
        let (target, egress) = (Target::configured(url).unwrap(), Egress::default());
        let kept = self.cookies.entry(target.origin().clone()).or_default();
        let mut request = Request::builder().uri(url);
        if !kept.is_empty() {
            let pairs: Vec<_> = kept.iter().map(|(name, value)| format!("{name}={value}")).collect();
            request = request.header(COOKIE, pairs.join("; "));
        }
        if form.is_some() {
            request = request.method(Method::POST).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let request = request.body(form.map(Body::from).unwrap_or_default()).unwrap();
        let answer =
            tokio::time::timeout(TEST_TIMEOUT, egress.send(request, &target)).await.unwrap().unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        for cookie in headers.get_all(SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            match pair.split_once('=').unwrap() {
                (name, "") => kept.remove(name),
                (name, value) => kept.insert(name.to_owned(), value.to_owned()),
            };
        }
        let page = answer.into_body().read_to_end(MAX_PAGE_BYTES).await.unwrap();
        (status, headers, String::from_utf8_lossy(&page).into_owned())
    }
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    text.split_once(begin)?.1.split(end).next()
}

/// Resolves a reference on a page.
fn resolve_url(page: &str, place: &str) -> String {
    if !place.starts_with('/') {
        return place.to_owned();
    }
    let path = page.find("://").and_then(|at| page[at + 3..].find('/').map(|slash| at + 3 + slash));
    format!("{}{place}", &page[..path.unwrap_or(page.len())])
}
