//! A person at the plainest of browsers: it goes where it is led, keeps cookies, and fills in what it is asked.

use std::collections::HashMap;

use http::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, Method, Request};
use linchpin::egress::{Body, Egress, Target};

use crate::PATIENCE;

/// The longest page, and the longest way, that is gone.
const LARGEST: usize = 1 << 20;
const LONGEST: usize = 30;

/// Somebody with an account, and what their browser keeps for each place.
pub struct Person {
    account: &'static str,
    cookies: HashMap<String, HashMap<String, String>>,
    /// Where they have been, without the queries.
    pub visited: Vec<String>,
}

impl Person {
    /// One whose browser has never been anywhere.
    pub fn new(account: &'static str) -> Self {
        Person { account, cookies: HashMap::new(), visited: Vec::new() }
    }

    /// Opens an address and does all that is asked there: the status and the page at which that ends.
    pub async fn open(&mut self, url: &str) -> (u16, String) {
        let (mut url, mut form) = (url.to_owned(), None);
        for _ in 0..LONGEST {
            let (status, headers, page) = self.send(&url, form.take()).await;
            if let Some(place) = headers.get(LOCATION) {
                url = joined(&url, place.to_str().unwrap());
            } else if let Some(action) = between(&page, " action=\"", "\"") {
                form = Some(self.filled_in(&page));
                url = joined(&url, action);
            } else {
                return (status, page);
            }
        }
        panic!("there is no end: {:?}", self.visited);
    }

    fn filled_in(&self, page: &str) -> String {
        let prompt = between(page, "name=\"prompt\" value=\"", "\"").unwrap_or_default();
        let login = page.contains("name=\"login\"").then(|| format!("&login={}&password=any", self.account));
        format!("prompt={prompt}{}", login.unwrap_or_default())
    }

    async fn send(&mut self, url: &str, form: Option<String>) -> (u16, HeaderMap, String) {
        self.visited.push(url.split('?').next().unwrap().to_owned());
        let (target, egress) = (Target::typed(url).unwrap(), Egress::default());
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
        let answer = tokio::time::timeout(PATIENCE, egress.send(request, &target)).await.unwrap().unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        for cookie in headers.get_all(SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            match pair.split_once('=').unwrap() {
                (name, "") => kept.remove(name),
                (name, value) => kept.insert(name.to_owned(), value.to_owned()),
            };
        }
        let page = answer.into_body().read_to_end(LARGEST).await.unwrap();
        (status, headers, String::from_utf8_lossy(&page).into_owned())
    }
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    text.split_once(begin)?.1.split(end).next()
}

/// Where a place on a page leads.
fn joined(page: &str, place: &str) -> String {
    if !place.starts_with('/') {
        return place.to_owned();
    }
    let path = page.find("://").and_then(|at| page[at + 3..].find('/').map(|slash| at + 3 + slash));
    format!("{}{place}", &page[..path.unwrap_or(page.len())])
}
