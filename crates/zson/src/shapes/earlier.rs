//! What a document has in common with one that was decoded before it, as in an update: values that are the same are taken
//! over as they were stored.

use super::jsonb::{Container, Node, container};
use super::patching::Parts;
use super::reading::{Rest, is_there};
use super::schema::{Member, Schema, Shape};

/// A payload of the dictionary that is written with, and its document.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Earlier<'e> {
    /// Compared with its check sum.
    pub(crate) payload: &'e [u8],
    /// What it decodes to.
    pub(crate) document: &'e [u8],
}

/// The same, an object of a shape.
#[derive(Copy, Clone)]
pub(super) struct Shaped<'e> {
    shape: &'e Shape,
    tokens: &'e [u8],
    values: Rest<'e>,
    object: Container<'e>,
}

/// A value of it.
pub(super) struct Stored<'e> {
    pub(super) node: Node<'e>,
    pub(super) tokens: &'e [u8],
    /// What the tokens say.
    pub(super) bytes: &'e [u8],
}

/// Its members, one after the other.
pub(super) struct Members<'e, P> {
    tokens: &'e [u8],
    values: Rest<'e>,
    pairs: P,
}

/// Keys of an object and their values, as [`Container`] gives them.
pub(super) trait Pairs<'d>: Iterator<Item = (Option<&'d [u8]>, Option<Node<'d>>)> {}

impl<'d, P: Iterator<Item = (Option<&'d [u8]>, Option<Node<'d>>)>> Pairs<'d> for P {}

impl<'e> Earlier<'e> {
    /// None: it is no object of a shape.
    pub(super) fn shaped(&self, schema: &'e Schema) -> Option<Shaped<'e>> {
        let Node::Object(object) = container(self.document)? else { return None };
        let Parts { shape, tokens, values, .. } = Parts::of(schema, self.payload)?;
        Some(Shaped { shape, tokens, values, object })
    }
}

impl<'e> Shaped<'e> {
    /// The members of its shape, if it is this one.
    pub(super) fn members(self, shape: &Shape) -> Option<Members<'e, impl Pairs<'e>>> {
        let Shaped { tokens, values, object, .. } = self;
        let pairs = object.keys().zip(object.values());
        std::ptr::eq(self.shape, shape).then_some(Members { tokens, values, pairs })
    }
}

impl<'e, P: Pairs<'e>> Members<'e, P> {
    /// The next member of the shape, which has this key; none if it is absent.
    pub(super) fn next(&mut self, member: &Member, key: &[u8]) -> Option<Stored<'e>> {
        let (tokens, behind) = self.tokens.split_at_checked(member.slots())?;
        self.tokens = behind;
        if !is_there(tokens) {
            return None;
        }
        let start = self.values;
        self.values.skip(tokens)?;
        let bytes = start.bytes.get(..start.bytes.len() - self.values.bytes.len())?;
        let (_, node) = self.pairs.find(|(found, _)| *found == Some(key))?;
        Some(Stored { node: node?, tokens, bytes })
    }
}
