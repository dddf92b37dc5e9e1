//! Counts the messages in an encoded model before they are decoded: two bytes of file can ask for hundreds of bytes of
//! memory, so that a small file could otherwise take all of it.

/// Most messages and strings that a model may be made of. The largest networks in use have about 100,000.
const MAX_FIELDS: usize = 1 << 20;
/// Deepest nesting, that of prost as well.
const MAX_DEPTH: usize = 100;

/// Messages that contain others.
#[derive(Clone, Copy)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    ValueInfo,
    Type,
    TensorType,
    Shape,
}

/// What a length-delimited field holds.
enum Content {
    /// A message to look into.
    Message(Kind),
    /// Text, bytes or packed numbers, which take about as much memory as file.
    Plain,
    /// A message that models rarely have: each of its bytes counts.
    Rare,
}

/// Field numbers are those of the public schema, onnx.proto.
fn content(kind: Kind, field: u64) -> Content {
    let kind = match (kind, field) {
        (Kind::Model, 7) | (Kind::Attribute, 6 | 11) => Kind::Graph,
        (Kind::Graph, 1) => Kind::Node,
        (Kind::Graph, 5) | (Kind::Attribute, 5 | 10) => Kind::Tensor,
        (Kind::Graph, 11..=13) => Kind::ValueInfo,
        (Kind::Node, 5) => Kind::Attribute,
        (Kind::ValueInfo, 2) => Kind::Type,
        (Kind::Type, 1) => Kind::TensorType,
        (Kind::TensorType, 2) => Kind::Shape,
        (Kind::Model, 2..=6)
        | (Kind::Graph, 2 | 10)
        | (Kind::Node, 1..=4 | 6..=8)
        | (Kind::Attribute, 1 | 4 | 7..=9 | 13 | 21)
        | (Kind::Tensor, 1 | 4..=12)
        | (Kind::ValueInfo, 1 | 3)
        | (Kind::Shape, 1) => return Content::Plain,
        _ => return Content::Rare,
    };
    Content::Message(kind)
}

/// Checks that a model holds no more messages and strings than the limit and nests no deeper than prost reads.
///
/// # Errors
/// Says which limit is passed, or that the data ends too early.
pub(super) fn check(model: &[u8]) -> Result<(), String> {
    let mut left = MAX_FIELDS;
    scan(model, Kind::Model, MAX_DEPTH, &mut left)
}

fn scan(mut message: &[u8], kind: Kind, depth: usize, left: &mut usize) -> Result<(), String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!("messages are nested more than {MAX_DEPTH} deep"));
    };
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let fixed = match key & 7 {
            0 => {
                varint(&mut message)?;
                0
            }
            1 => 8,
            2 => {
                let length = varint(&mut message)?;
                let inner = take(&mut message, length)?;
                let cost = match content(kind, key >> 3) {
                    Content::Message(inner_kind) => {
                        scan(inner, inner_kind, depth, left)?;
                        1
                    }
                    Content::Plain => 1,
                    Content::Rare => 1 + inner.len() / 2,
                };
                *left = left.checked_sub(cost).ok_or_else(|| format!("more than {MAX_FIELDS} messages and strings"))?;
                0
            }
            5 => 4,
            other => return Err(format!("the file is damaged: wire type {other}")),
        };
        take(&mut message, fixed)?;
    }
    Ok(())
}

fn take<'a>(message: &mut &'a [u8], length: u64) -> Result<&'a [u8], String> {
    let ends = || "the file ends too early or is damaged".to_owned();
    let length = usize::try_from(length).map_err(|_| ends())?;
    let (head, tail) = message.split_at_checked(length).ok_or_else(ends)?;
    *message = tail;
    Ok(head)
}

/// A number of up to 64 bits, seven in a byte, the lowest first.
fn varint(message: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("the file is damaged: a number of more than 64 bits".into())
}
