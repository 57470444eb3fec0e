//! Signed tokens: keys, signatures and what a token says. It knows nothing of who trusts whom.
