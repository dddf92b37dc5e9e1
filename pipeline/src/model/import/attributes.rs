//! Typed access to a node's attributes: each must be asked for, none may be left.

use std::collections::BTreeMap;

use super::refusal::{Refusal, refuse};
use crate::model::onnx::proto::attribute_proto::AttributeType;
use crate::model::onnx::proto::{AttributeProto, NodeProto, TensorProto};

/// A node's attributes that were not read yet.
pub(super) struct Attributes<'a> {
    left: BTreeMap<&'a str, &'a AttributeProto>,
}

impl<'a> Attributes<'a> {
    /// Attributes of a node; a name may occur once.
    pub(super) fn of(node: &'a NodeProto) -> Result<Self, Refusal> {
        let mut left = BTreeMap::new();
        for attribute in &node.attribute {
            let name = attribute.name.as_deref().unwrap_or_default();
            if attribute.ref_attr_name.as_deref().is_some_and(|reference| !reference.is_empty()) {
                return refuse(format!("attribute \"{name}\" refers to a function's; functions are not supported"));
            }
            if left.insert(name, attribute).is_some() {
                return refuse(format!("attribute \"{name}\" occurs twice"));
            }
        }
        Ok(Self { left })
    }

    /// Takes an attribute of the given type. Writers before IR version 2 leave the type out; the field tells it then.
    fn take(&mut self, name: &str, wanted: AttributeType) -> Result<Option<&'a AttributeProto>, Refusal> {
        let Some(attribute) = self.left.remove(name) else {
            return Ok(None);
        };
        let stated = attribute.r#type.unwrap_or_default();
        if stated == wanted as i32 || stated == AttributeType::Undefined as i32 {
            return Ok(Some(attribute));
        }
        let stated = AttributeType::try_from(stated).map_or("unknown", |t| t.as_str_name());
        refuse(format!("attribute \"{name}\" must be {}, the model has {stated}", wanted.as_str_name()))
    }

    /// A number.
    pub(super) fn int(&mut self, name: &str, default: i64) -> Result<i64, Refusal> {
        match self.take(name, AttributeType::Int)? {
            None => Ok(default),
            Some(attribute) => attribute.i.ok_or_else(|| empty(name)),
        }
    }

    /// A number that is there or not.
    pub(super) fn optional_int(&mut self, name: &str) -> Result<Option<i64>, Refusal> {
        let present = self.left.contains_key(name);
        let value = self.int(name, 0)?;
        Ok(present.then_some(value))
    }

    /// A number that is 0 or 1.
    pub(super) fn flag(&mut self, name: &str, default: bool) -> Result<bool, Refusal> {
        match self.int(name, default.into())? {
            0 => Ok(false),
            1 => Ok(true),
            other => refuse(format!("attribute \"{name}\" is {other}; it must be 0 or 1")),
        }
    }

    /// A real number.
    pub(super) fn float(&mut self, name: &str, default: f32) -> Result<f32, Refusal> {
        match self.take(name, AttributeType::Float)? {
            None => Ok(default),
            Some(attribute) => attribute.f.ok_or_else(|| empty(name)),
        }
    }

    /// A real number that is there or not.
    pub(super) fn optional_float(&mut self, name: &str) -> Result<Option<f32>, Refusal> {
        let present = self.left.contains_key(name);
        let value = self.float(name, 0.0)?;
        Ok(present.then_some(value))
    }

    /// A list of numbers.
    pub(super) fn ints(&mut self, name: &str) -> Result<Option<Vec<i64>>, Refusal> {
        Ok(self.take(name, AttributeType::Ints)?.map(|attribute| attribute.ints.clone()))
    }

    /// A list of real numbers.
    pub(super) fn floats(&mut self, name: &str) -> Result<Option<Vec<f32>>, Refusal> {
        Ok(self.take(name, AttributeType::Floats)?.map(|attribute| attribute.floats.clone()))
    }

    /// A tensor.
    pub(super) fn tensor(&mut self, name: &str) -> Result<Option<&'a TensorProto>, Refusal> {
        match self.take(name, AttributeType::Tensor)? {
            None => Ok(None),
            Some(attribute) => attribute.t.as_ref().map(Some).ok_or_else(|| empty(name)),
        }
    }

    /// One of the words of a table; `default` where the attribute is absent.
    pub(super) fn choice<T: Copy>(&mut self, name: &str, default: T, table: &[(&str, T)]) -> Result<T, Refusal> {
        let Some(attribute) = self.take(name, AttributeType::String)? else {
            return Ok(default);
        };
        let word = attribute.s.as_deref().unwrap_or_default();
        if let Some((_, value)) = table.iter().find(|(known, _)| known.as_bytes() == word) {
            return Ok(*value);
        }
        let known = table.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let word = String::from_utf8_lossy(word);
        refuse(format!("attribute \"{name}\" is \"{word}\", which is not supported; known are {known}"))
    }

    /// Drops attributes that cannot change the result.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        self.left.retain(|name, _| !names.contains(name));
    }

    /// Refuses what nobody asked for.
    pub(super) fn finish(&self) -> Result<(), Refusal> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => refuse(format!("attribute \"{name}\" is not supported")),
        }
    }
}

fn empty(name: &str) -> Refusal {
    Refusal(format!("attribute \"{name}\" has no value"))
}
