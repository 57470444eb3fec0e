//! Pages of lists that the hub returns as a whole.

use linchpin_hub_core::store::{Page, PageRequest};

/// Returns a page of a list, ordered by key.
pub(crate) fn page_by_key<T>(all: Vec<T>, paging: &PageRequest, key: impl Fn(&T) -> String) -> Page<T> {
    let mut keyed: Vec<_> = all.into_iter().map(|item| (key(&item), item)).collect();
    keyed.sort_by(|one, other| one.0.cmp(&other.0));
    let is_seen = |key: &String| paging.after.as_ref().is_some_and(|after| key <= after);
    let mut rest = keyed.into_iter().skip_while(|(key, _)| is_seen(key));
    let (keys, items): (Vec<_>, Vec<_>) = rest.by_ref().take(paging.limit).unzip();
    let next = rest.next().and_then(|_| keys.into_iter().next_back());
    Page { items, next }
}

/// Selects a page of a list, in the existing order of the list.
pub(crate) fn page_by_position<T>(all: Vec<T>, paging: &PageRequest) -> Page<T> {
    let numbered = all.into_iter().enumerate().map(|(index, item)| (format!("{:010}", index + 1), item));
    let Page { items, next } = page_by_key(numbered.collect(), paging, |(number, _)| number.clone());
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
            let Page { items, next } =
                page_by_key(all(), &PageRequest { after, limit: 2 }, |item| (*item).to_owned());
            assert!((1..=2).contains(&items.len()));
            seen.extend(items);
            match next {
                None => break,
                next => after = next,
            }
        }
        assert_eq!(seen, ["a", "b", "c", "d", "e"]);
        let removed = PageRequest { after: Some("bb".into()), limit: 9 };
        assert_eq!(page_by_key(all(), &removed, |item| (*item).to_owned()).items, ["c", "d", "e"]);
        let first = page_by_position(all(), &PageRequest { after: None, limit: 3 });
        assert_eq!(first.items, ["c", "a", "e"]);
        let second = page_by_position(all(), &PageRequest { after: first.next, limit: 3 });
        assert_eq!((second.items, second.next), (vec!["b", "d"], None));
        assert!(
            page_by_key(Vec::<&str>::new(), &PageRequest { after: None, limit: 1 }, |_| String::new())
                .next
                .is_none()
        );
    }
}
