//! Pages of in-memory lists.

use linchpin_hub_core::store::{Page, Paging};

/// Returns a page of a list, ordered by key.
pub(crate) fn cut<T>(all: Vec<T>, paging: &Paging, key: impl Fn(&T) -> String) -> Page<T> {
    let mut keyed: Vec<_> = all.into_iter().map(|item| (key(&item), item)).collect();
    keyed.sort_by(|one, other| one.0.cmp(&other.0));
    let is_seen = |key: &String| paging.after.as_ref().is_some_and(|after| key <= after);
    let mut rest = keyed.into_iter().skip_while(|(key, _)| is_seen(key));
    let (keys, items): (Vec<_>, Vec<_>) = rest.by_ref().take(paging.limit).unzip();
    let next = rest.next().and_then(|_| keys.into_iter().next_back());
    Page { items, next }
}

/// Like [`cut`], in the existing order of the list.
pub(crate) fn numbered<T>(all: Vec<T>, paging: &Paging) -> Page<T> {
    let numbered = all.into_iter().enumerate().map(|(index, item)| (format!("{:010}", index + 1), item));
    let Page { items, next } = cut(numbered.collect(), paging, |(number, _)| number.clone());
    Page { items: items.into_iter().map(|(_, item)| item).collect(), next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_a_gap() {
        let all = || vec!["c", "a", "e", "b", "d"];
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let Page { items, next } = cut(all(), &Paging { after, limit: 2 }, |item| (*item).to_owned());
            assert!((1..=2).contains(&items.len()));
            seen.extend(items);
            match next {
                None => break,
                next => after = next,
            }
        }
        assert_eq!(seen, ["a", "b", "c", "d", "e"]);
        let removed = Paging { after: Some("bb".into()), limit: 9 };
        assert_eq!(cut(all(), &removed, |item| (*item).to_owned()).items, ["c", "d", "e"]);
        let first = numbered(all(), &Paging { after: None, limit: 3 });
        assert_eq!(first.items, ["c", "a", "e"]);
        let second = numbered(all(), &Paging { after: first.next, limit: 3 });
        assert_eq!((second.items, second.next), (vec!["b", "d"], None));
        assert!(cut(Vec::<&str>::new(), &Paging { after: None, limit: 1 }, |_| String::new()).next.is_none());
    }
}
