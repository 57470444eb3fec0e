//! `serde` deserializer for JSON text that the scanner has already checked.
//!
//! The scanner has already accepted the text, so it is not validated again: ends of strings are found with vector
//! instructions, strings are copied only if they contain escapes, and errors carry the offset of the invalid value. For
//! unchecked text the result may be wrong or an error, but decoding never panics.

mod key;

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

use self::key::KeyDeserializer;
use crate::scan::{Limits, Scan};
use crate::string::{escape, find_special};

/// Reason why a JSON value cannot be deserialized into a type, with its offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Byte offset of the value.
    pub at: Option<usize>,
    /// Description of the error.
    pub reason: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        DecodeError { at: None, reason: reason.to_string() }
    }
}

type Result<T> = std::result::Result<T, DecodeError>;

/// Deserializes text that [`crate::check`] or [`crate::parse`] has accepted.
pub fn from_checked<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T> {
    T::deserialize(&mut Decoder { text, at: 0, depth: 0 })
}

struct Decoder<'de> {
    text: &'de str,
    at: usize,
    depth: u8,
}

/// Maximum nesting depth of text that the scanner has not checked. The scanner never accepts as much.
const MAX_DEPTH: u8 = 128;

impl<'de> Decoder<'de> {
    fn peek(&mut self) -> Result<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied().ok_or_else(|| self.invalid_json())
    }

    #[cold]
    fn invalid_json(&self) -> DecodeError {
        DecodeError { at: Some(self.at.min(self.text.len())), reason: "invalid JSON".into() }
    }

    /// Reads the JSON string at the current position.
    fn string(&mut self) -> Result<Cow<'de, str>> {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let mut end = start + find_special(bytes.get(start..).unwrap_or_default());
        if bytes.get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(Cow::Borrowed(&self.text[start..end]));
        }
        let mut text = String::with_capacity(end - start + 16);
        let mut plain = start;
        loop {
            text.push_str(&self.text[plain..end]);
            let (char, length) = escape(&self.text[end..]).ok_or_else(|| self.invalid_json())?;
            text.push(char);
            plain = end + length;
            let next = memchr::memchr2(b'"', b'\\', bytes.get(plain..).unwrap_or_default());
            end = plain + next.ok_or_else(|| self.invalid_json())?;
            if bytes[end] == b'"' {
                text.push_str(&self.text[plain..end]);
                self.at = end + 1;
                return Ok(Cow::Owned(text));
            }
        }
    }

    /// Reads the object key at the current position and its colon.
    fn key(&mut self) -> Result<KeyDeserializer<'de>> {
        if self.peek()? != b'"' {
            return Err(self.invalid_json());
        }
        let key = self.string()?;
        if self.peek()? != b':' {
            return Err(self.invalid_json());
        }
        self.at += 1;
        Ok(KeyDeserializer(key))
    }

    fn number(&mut self) -> &'de str {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest.bytes().take_while(|byte| is_part(byte)).count();
        self.at += length;
        &rest[..length]
    }

    fn visit_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        let number = self.number();
        if let Ok(number) = number.parse() {
            return visitor.visit_u64(number);
        }
        if let Ok(number) = number.parse() {
            return visitor.visit_i64(number);
        }
        match number.parse::<f64>() {
            Ok(number) if number.is_finite() => visitor.visit_f64(number),
            _ => Err(de::Error::custom("the number is out of range")),
        }
    }

    /// Passes a JSON integer to the visitor. JSON may write it as `2.0` or `2e3`.
    fn visit_integer<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        let start = self.at;
        let number = self.number();
        if number.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
            && let Ok(number) = number.parse::<f64>()
            && number.fract() == 0.0
            && number.abs() <= MAX_SAFE_INTEGER
        {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the number is an integer within the safe range"
            )]
            return visitor.visit_i64(number as i64);
        }
        self.at = start;
        self.visit_number(visitor)
    }

    fn visit<V: Visitor<'de>>(&mut self, first: u8, visitor: V) -> Result<V::Value> {
        match first {
            b'"' => match self.string()? {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            b'{' => {
                let mut state = self.open()?;
                let value = visitor.visit_map(Members { decoder: self, state: &mut state })?;
                self.close(&mut state, b'}').map(|()| value)
            }
            b'[' => {
                let mut state = self.open()?;
                let value = visitor.visit_seq(Elements { decoder: self, state: &mut state })?;
                self.close(&mut state, b']').map(|()| value)
            }
            b't' => self.literal("true").and_then(|()| visitor.visit_bool(true)),
            b'f' => self.literal("false").and_then(|()| visitor.visit_bool(false)),
            b'n' => self.literal("null").and_then(|()| visitor.visit_unit()),
            _ => self.visit_number(visitor),
        }
    }

    fn literal(&mut self, word: &str) -> Result<()> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.invalid_json());
        }
        self.at += word.len();
        Ok(())
    }

    /// Returns the JSON text of the value at the current position.
    fn raw_value(&mut self) -> Result<&'de str> {
        self.peek()?;
        let mut scan = Scan::new(&self.text[self.at..], Limits::default());
        let text = scan.value(0).map_err(|_| self.invalid_json())?;
        self.at += text.len();
        Ok(text)
    }

    /// Reports whether another member or element follows.
    fn has_next(&mut self, state: &mut ContainerState, end: u8) -> Result<bool> {
        match self.peek()? {
            byte if byte == end => {
                self.at += 1;
                *state = ContainerState::End;
                Ok(false)
            }
            b',' if *state == ContainerState::Next => {
                self.at += 1;
                self.peek().map(|_| true)
            }
            _ if *state == ContainerState::First => {
                *state = ContainerState::Next;
                Ok(true)
            }
            _ => Err(self.invalid_json()),
        }
    }

    /// Deserializes the value at the current position. An error gets the offset of the innermost value it concerns.
    fn deserialize_located<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        self.peek()?;
        let at = self.at;
        seed.deserialize(self).map_err(|error| DecodeError { at: error.at.or(Some(at)), ..error })
    }

    fn open(&mut self) -> Result<ContainerState> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.invalid_json()) } else { Ok(ContainerState::First) }
    }

    /// Checks the end of a container: a type of fixed length stops reading early, and further values are an error.
    fn close(&mut self, state: &mut ContainerState, end: u8) -> Result<()> {
        if *state != ContainerState::End && self.has_next(state, end)? {
            return Err(de::Error::custom("an array or object has more values than expected"));
        }
        self.depth -= 1;
        Ok(())
    }
}

/// Read position of the decoder in a JSON object or array: before the first element, after one, or at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContainerState {
    First,
    Next,
    End,
}

/// Largest integer up to which `f64` represents every integer exactly.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Name by which `serde_json` requests the raw text of a value.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

macro_rules! integers {
    ($( $method:ident )*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match self.peek()? {
                b'-' | b'0'..=b'9' => self.visit_integer(visitor),
                first => self.visit(first, visitor),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Decoder<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let first = self.peek()?;
        self.visit(first, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.peek()? == b'n' {
            self.literal("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        if name == RAW_VALUE {
            return visitor.visit_map(RawMember(Some(self.raw_value()?)));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.peek()? {
            b'"' => visitor.visit_enum(self.string()?.into_deserializer()),
            b'{' => {
                self.at += 1;
                self.peek()?;
                visitor.visit_enum(Variant(self)).and_then(|value| match self.peek()? {
                    b'}' => {
                        self.at += 1;
                        Ok(value)
                    }
                    _ => Err(de::Error::custom("expected an object with one member")),
                })
            }
            _ => Err(de::Error::custom("expected a string or an object with one member")),
        }
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.peek()?;
        let at = self.at;
        match self.number().parse() {
            Ok(number) => visitor.visit_i128(number),
            Err(_) => self.deserialize_any_from(at, visitor),
        }
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.peek()?;
        let at = self.at;
        match self.number().parse() {
            Ok(number) => visitor.visit_u128(number),
            Err(_) => self.deserialize_any_from(at, visitor),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.peek()? != b'"' {
            return self.deserialize_any(visitor);
        }
        match self.string()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_bytes(text.as_bytes()),
            Cow::Owned(text) => visitor.visit_byte_buf(text.into_bytes()),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_bytes(visitor)
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    /// Accepts only strings: a number must not be interpreted as a field index.
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek()? {
            b'"' => self.deserialize_any(visitor),
            _ => Err(DecodeError { at: Some(self.at), reason: "expected a string".into() }),
        }
    }

    /// Accepts only objects: serde would also accept an array of the fields, which the schema of a struct does not
    /// allow.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.peek()? {
            b'[' => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            first => self.visit(first, visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.peek()? == b'"' {
            self.string()?; // fast path: most ignored values are short strings
        } else {
            self.raw_value()?;
        }
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool f32 f64 char str string unit unit_struct seq tuple tuple_struct map
    }
}

impl<'de> Decoder<'de> {
    fn deserialize_any_from<V: Visitor<'de>>(&mut self, at: usize, visitor: V) -> Result<V::Value> {
        self.at = at;
        de::Deserializer::deserialize_any(self, visitor)
    }
}

struct Members<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    state: &'a mut ContainerState,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.decoder.has_next(self.state, b'}')? {
            return Ok(None);
        }
        seed.deserialize(self.decoder.key()?).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.decoder.deserialize_located(seed)
    }
}

struct Elements<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    state: &'a mut ContainerState,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if !self.decoder.has_next(self.state, b']')? {
            return Ok(None);
        }
        self.decoder.deserialize_located(seed).map(Some)
    }
}

/// Deserializer of an enum variant that is encoded as an object with one member.
struct Variant<'a, 'de>(&'a mut Decoder<'de>);

impl<'de, 'a> EnumAccess<'de> for Variant<'a, 'de> {
    type Error = DecodeError;
    type Variant = &'a mut Decoder<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self::Variant)> {
        let name = seed.deserialize(self.0.key()?)?;
        Ok((name, self.0))
    }
}

impl<'de> VariantAccess<'de> for &mut Decoder<'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<()> {
        Deserialize::deserialize(self)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        de::Deserializer::deserialize_any(self, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value> {
        de::Deserializer::deserialize_any(self, visitor)
    }
}

/// Raw text of a value in the form that `serde_json::value::RawValue` expects.
struct RawMember<'de>(Option<&'de str>);

impl<'de> MapAccess<'de> for RawMember<'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        self.0.map(|_| seed.deserialize(BorrowedStrDeserializer::new(RAW_VALUE))).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        let text = self.0.take().unwrap_or("null");
        seed.deserialize(StringDeserializer::new(text.to_owned()))
    }
}
