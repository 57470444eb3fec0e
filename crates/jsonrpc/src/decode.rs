//! Checked JSON text into types, through serde.
//!
//! The scanner has accepted the text already, so what is decoded is not checked again: the ends of strings are
//! found with vector instructions, text is copied only when it holds escapes, and an error remembers the value it
//! is about. For text that was never checked the result may be wrong, or an error; it is never a panic.

mod key;

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

use self::key::Key;
use crate::scan::{Limits, Scan};
use crate::string::{escape, find_special};

/// Why a value does not fit into a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// Where the value begins, in bytes.
    pub at: Option<usize>,
    /// What is wrong with it.
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

/// Decodes text that [`crate::check`] or [`crate::parse`] has accepted.
pub fn from_checked<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T> {
    T::deserialize(&mut Decoder { text, at: 0, depth: 0 })
}

struct Decoder<'de> {
    text: &'de str,
    at: usize,
    depth: u8,
}

/// Deeper than the scanner lets anything through.
const MAX_DEPTH: u8 = 128;

impl<'de> Decoder<'de> {
    fn peek(&mut self) -> Result<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied().ok_or_else(|| self.broken())
    }

    #[cold]
    fn broken(&self) -> DecodeError {
        DecodeError { at: Some(self.at.min(self.text.len())), reason: "this is not JSON".into() }
    }

    /// The string that begins here.
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
            let (char, length) = escape(&self.text[end..]).ok_or_else(|| self.broken())?;
            text.push(char);
            plain = end + length;
            let next = memchr::memchr2(b'"', b'\\', bytes.get(plain..).unwrap_or_default());
            end = plain + next.ok_or_else(|| self.broken())?;
            if bytes[end] == b'"' {
                text.push_str(&self.text[plain..end]);
                self.at = end + 1;
                return Ok(Cow::Owned(text));
            }
        }
    }

    /// The key that begins here, and its colon.
    fn key(&mut self) -> Result<Key<'de>> {
        if self.peek()? != b'"' {
            return Err(self.broken());
        }
        let key = self.string()?;
        if self.peek()? != b':' {
            return Err(self.broken());
        }
        self.at += 1;
        Ok(Key(key))
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
            _ => Err(de::Error::custom("number out of range")),
        }
    }

    /// An integer, which JSON may write as `2.0` or `2e3` as well.
    fn visit_integer<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        let start = self.at;
        let number = self.number();
        if number.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
            && let Ok(number) = number.parse::<f64>()
            && number.fract() == 0.0
            && number.abs() <= SAFE
        {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
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
                let mut place = self.open()?;
                let value = visitor.visit_map(Members { decoder: self, place: &mut place })?;
                self.close(&mut place, b'}').map(|()| value)
            }
            b'[' => {
                let mut place = self.open()?;
                let value = visitor.visit_seq(Elements { decoder: self, place: &mut place })?;
                self.close(&mut place, b']').map(|()| value)
            }
            b't' => self.word("true").and_then(|()| visitor.visit_bool(true)),
            b'f' => self.word("false").and_then(|()| visitor.visit_bool(false)),
            b'n' => self.word("null").and_then(|()| visitor.visit_unit()),
            _ => self.visit_number(visitor),
        }
    }

    fn word(&mut self, word: &str) -> Result<()> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.broken());
        }
        self.at += word.len();
        Ok(())
    }

    /// The text of the value that begins here.
    fn raw(&mut self) -> Result<&'de str> {
        self.peek()?;
        let mut scan = Scan::new(&self.text[self.at..], Limits::default());
        let text = scan.value(0).map_err(|_| self.broken())?;
        self.at += text.len();
        Ok(text)
    }

    /// Whether another member or element follows.
    fn more(&mut self, place: &mut Place, end: u8) -> Result<bool> {
        match self.peek()? {
            byte if byte == end => {
                self.at += 1;
                *place = Place::End;
                Ok(false)
            }
            b',' if *place == Place::Later => {
                self.at += 1;
                self.peek().map(|_| true)
            }
            _ if *place == Place::First => {
                *place = Place::Later;
                Ok(true)
            }
            _ => Err(self.broken()),
        }
    }

    /// Decodes the value that begins here; an error gets the place of the innermost value it is about.
    fn placed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        self.peek()?;
        let at = self.at;
        seed.deserialize(self).map_err(|error| DecodeError { at: error.at.or(Some(at)), ..error })
    }

    fn open(&mut self) -> Result<Place> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.broken()) } else { Ok(Place::First) }
    }

    /// A type of fixed length stops reading before the end: there must be nothing more.
    fn close(&mut self, place: &mut Place, end: u8) -> Result<()> {
        if *place != Place::End && self.more(place, end)? {
            return Err(de::Error::custom("there are more values than expected here"));
        }
        self.depth -= 1;
        Ok(())
    }
}

/// How far an object or array has been read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    First,
    Later,
    End,
}

/// Up to here a double tells every integer from the next.
const SAFE: f64 = 9_007_199_254_740_991.0;

/// The name under which `serde_json` asks for the text of a value.
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
            self.word("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        if name == RAW_VALUE {
            return visitor.visit_map(RawMember(Some(self.raw()?)));
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
                    _ => Err(de::Error::custom("an object with one member is expected here")),
                })
            }
            _ => Err(de::Error::custom("a string or an object with one member is expected here")),
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

    /// Names are texts; a number must not be taken for the position of a name.
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek()? {
            b'"' => self.deserialize_any(visitor),
            _ => Err(DecodeError { at: Some(self.at), reason: "a name in quotes is expected here".into() }),
        }
    }

    /// A struct is an object: a list of its fields, which serde would take, is not what its schema says.
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
            self.string()?; // most of what is ignored is a word
        } else {
            self.raw()?;
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
    place: &'a mut Place,
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.decoder.more(self.place, b'}')? {
            return Ok(None);
        }
        seed.deserialize(self.decoder.key()?).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.decoder.placed(seed)
    }
}

struct Elements<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    place: &'a mut Place,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if !self.decoder.more(self.place, b']')? {
            return Ok(None);
        }
        self.decoder.placed(seed).map(Some)
    }
}

/// An enum written as an object with one member.
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

/// The text of a value, as `serde_json::value::RawValue` wants to be given it.
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
