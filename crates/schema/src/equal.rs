//! Equality of JSON values (numbers by value, objects regardless of order) and uniqueness of array items.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::{Map, Value};

use crate::budget::WorkBudget;
use crate::number::Number;

/// Maximum number of array items that `uniqueItems` compares pairwise. Larger arrays are compared by hash.
const MAX_PAIRWISE_ITEMS: usize = 12;

/// Compares two values and spends work for every value compared. If the work is exhausted, the result is meaningless.
pub(crate) fn is_equal(left: &Value, right: &Value, work: &mut WorkBudget) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            work.spend(1) && Number::from_json(left) == Number::from_json(right)
        }
        (Value::String(left), Value::String(right)) => {
            work.spend(1) && left.len() == right.len() && work.spend(text_cost(left)) && left == right
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && with_level(work, |work| {
                    left.iter().zip(right).all(|(left, right)| is_equal(left, right, work))
                })
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len() && with_level(work, |work| is_equal_object(left, right, work))
        }
        (left, right) => work.spend(1) && left == right,
    }
}

fn is_equal_object(left: &Map<String, Value>, right: &Map<String, Value>, work: &mut WorkBudget) -> bool {
    left.iter().all(|(key, left)| {
        work.spend(text_cost(key)) && right.get(key).is_some_and(|right| is_equal(left, right, work))
    })
}

/// Returns the cost of reading a string, to be charged to the work budget.
pub(crate) fn text_cost(text: &str) -> u64 {
    text.len() as u64 / 64
}

fn with_level(work: &mut WorkBudget, compare: impl FnOnce(&mut WorkBudget) -> bool) -> bool {
    if !work.enter() {
        return false;
    }
    let equal = compare(work);
    work.leave();
    equal
}

/// Reports whether all items are different.
pub(crate) fn is_unique(items: &[Value], work: &mut WorkBudget) -> bool {
    if items.len() <= MAX_PAIRWISE_ITEMS {
        return items
            .iter()
            .enumerate()
            .all(|(index, item)| !items[..index].iter().any(|earlier| is_equal(earlier, item, work)));
    }
    let mut hashes = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        hashes.push((hash(item, work), index));
        if work.error().is_some() {
            return false;
        }
    }
    hashes.sort_unstable();
    hashes.chunk_by(|left, right| left.0 == right.0).all(|group| {
        group.iter().enumerate().all(|(at, &(_, index))| {
            !group[..at].iter().any(|&(_, earlier)| is_equal(&items[earlier], &items[index], work))
        })
    })
}

fn hash(value: &Value, work: &mut WorkBudget) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(value).hash(&mut hasher);
    // Hashing and sorting cost more than a comparison.
    if !work.enter() || !work.spend(7) {
        return 0;
    }
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(&mut hasher),
        Value::Number(number) => match Number::from_json(number) {
            Number::Integer(value) => value.hash(&mut hasher),
            Number::Float(value) => value.to_bits().hash(&mut hasher),
        },
        Value::String(text) => {
            work.spend(text_cost(text));
            text.hash(&mut hasher);
        }
        Value::Array(items) => items.iter().for_each(|item| hash(item, work).hash(&mut hasher)),
        Value::Object(members) => {
            // Sum of the member hashes: the order of members must not matter.
            let sum = members.iter().fold(0_u64, |sum, (key, value)| {
                let mut member = DefaultHasher::new();
                work.spend(text_cost(key));
                (key, hash(value, work)).hash(&mut member);
                sum.wrapping_add(member.finish())
            });
            sum.hash(&mut hasher);
        }
    }
    work.leave();
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_the_same_whatever_their_form() {
        for (left, right, expected) in [
            (json!(1), json!(1.0), true),
            (json!(0), json!(-0.0), true),
            (json!(0), json!(false), false),
            (json!("1"), json!(1), false),
            (json!({"a": 1, "b": [2]}), json!({"b": [2.0], "a": 1}), true),
            (json!({"a": 1}), json!({"a": 1, "b": 1}), false),
            (json!({"a": 1}), json!({"b": 1}), false),
            (json!([1, 2]), json!([2, 1]), false),
            (json!(null), json!(null), true),
            (json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992.0), false),
        ] {
            let work = &mut WorkBudget::new(1000);
            assert_eq!(is_equal(&left, &right, work), expected, "{left} {right}");
            assert_eq!(hash(&left, work) == hash(&right, work), expected, "{left} {right}");
        }
    }

    #[test]
    fn the_many_are_compared_like_the_few() {
        let many = |last: Value| {
            let mut items: Vec<Value> = (0..40).map(|index| json!({"a": index, "b": [index]})).collect();
            items.push(last);
            items
        };
        let work = &mut WorkBudget::new(100_000);
        assert!(is_unique(&many(json!({"a": 40, "b": [3]})), work));
        assert!(!is_unique(&many(json!({"b": [7.0], "a": 7})), work));
        assert!(is_unique(&[json!(1), json!(true), json!("1")], work));
        assert!(!is_unique(&[json!(1), json!(2), json!(1.0)], work));
        assert!(work.error().is_none());
    }

    #[test]
    fn values_without_end_use_up_the_work() {
        let mut deep = json!(1);
        for _ in 0..1_000 {
            deep = json!([deep]);
        }
        let work = &mut WorkBudget::new(u64::MAX);
        is_equal(&deep, &deep.clone(), work);
        assert!(work.error().is_some());
        let work = &mut WorkBudget::new(u64::MAX);
        is_unique(&vec![deep; 20], work);
        assert!(work.error().is_some());
        let work = &mut WorkBudget::new(100);
        is_unique(&vec![json!([1, 2, 3]); 100], work);
        assert!(work.error().is_some());
    }
}
