//! Types that cannot be arguments.

use linchpin::args;

#[args]
struct Pair(i64, i64);

#[args]
struct Nothing;

#[args]
struct Borrowed<'a> {
    text: &'a str,
}

#[args]
union Either {
    a: i64,
    b: u64,
}

#[args]
fn function() {}

fn main() {}
