//! Tensors of the file: raw, typed and external data.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use super::refusal::{Refusal, refuse, size};
use super::tensor::{Budget, Data, Encoding, Tensor};
use crate::model::onnx::proto::TensorProto;
use crate::model::onnx::proto::tensor_proto::DataLocation;

/// Reads a tensor; `folder` is where its external data may lie. Nothing is allocated before the data is known to hold
/// as many elements as the dimensions say.
pub(super) fn read(proto: &TensorProto, folder: Option<&Path>, budget: &mut Budget) -> Result<Tensor, Refusal> {
    let encoding = Encoding::of(proto.data_type.unwrap_or_default())?;
    let dims = proto.dims.iter().map(|&d| size(d, "a dimension")).collect::<Result<Vec<_>, _>>()?;
    if proto.segment.is_some() {
        return refuse("tensors in segments are not supported");
    }
    let count = budget.store(&dims)?;
    let bytes = count as u64 * encoding.bytes() as u64;
    let data = match proto.data_location.unwrap_or_default() {
        location if location == DataLocation::External as i32 => {
            let Some(folder) = folder else {
                return refuse("external data needs a model file on disk");
            };
            raw(encoding, &External::of(proto)?.read(folder, bytes)?)
        }
        location if location != DataLocation::Default as i32 => {
            return refuse(format!("data location {location} is unknown"));
        }
        _ => match &proto.raw_data {
            Some(data) if data.len() as u64 == bytes => raw(encoding, data),
            Some(data) => return refuse(format!("{dims:?} need {bytes} bytes, the file has {}", data.len())),
            None => typed(encoding, proto, count)?,
        },
    };
    if let Data::Int(values) = &data
        && encoding == Encoding::U64
        && values.iter().any(|&v| v < 0)
    {
        return refuse("an unsigned value above 2^63 is not supported");
    }
    Ok(Tensor { name: proto.name.clone().unwrap_or_default(), dtype: encoding.dtype(), dims, data })
}

/// Little-endian elements.
fn raw(encoding: Encoding, bytes: &[u8]) -> Data {
    fn map<const N: usize, T, C: FromIterator<T>>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> C {
        bytes.as_chunks::<N>().0.iter().map(|&chunk| f(chunk)).collect()
    }
    match encoding {
        Encoding::F32 => Data::Float(map(bytes, f32::from_le_bytes)),
        Encoding::F64 => Data::Float(map(bytes, |b| f64::from_le_bytes(b) as f32)),
        Encoding::F16 => Data::Float(map(bytes, |b| half::f16::from_le_bytes(b).to_f32())),
        Encoding::Bf16 => Data::Float(map(bytes, |b| half::bf16::from_le_bytes(b).to_f32())),
        Encoding::I8 => Data::Int(map(bytes, |b| i8::from_le_bytes(b).into())),
        Encoding::U8 => Data::Int(map(bytes, |b| u8::from_le_bytes(b).into())),
        Encoding::I16 => Data::Int(map(bytes, |b| i16::from_le_bytes(b).into())),
        Encoding::U16 => Data::Int(map(bytes, |b| u16::from_le_bytes(b).into())),
        Encoding::I32 => Data::Int(map(bytes, |b| i32::from_le_bytes(b).into())),
        Encoding::U32 => Data::Int(map(bytes, |b| u32::from_le_bytes(b).into())),
        Encoding::I64 | Encoding::U64 => Data::Int(map(bytes, i64::from_le_bytes)),
        Encoding::Bool => Data::Int(map(bytes, |[b]: [u8; 1]| i64::from(b != 0))),
    }
}

/// Elements of the typed fields: several narrow types share `int32_data`, 16-bit floats there as bit patterns.
fn typed(encoding: Encoding, proto: &TensorProto, count: usize) -> Result<Data, Refusal> {
    let ints = &proto.int32_data;
    let data = match encoding {
        Encoding::F32 => Data::Float(proto.float_data.clone().into()),
        Encoding::F64 => Data::Float(proto.double_data.iter().map(|&v| v as f32).collect()),
        Encoding::F16 => Data::Float(ints.iter().map(|&v| half::f16::from_bits(v as u16).to_f32()).collect()),
        Encoding::Bf16 => Data::Float(ints.iter().map(|&v| half::bf16::from_bits(v as u16).to_f32()).collect()),
        Encoding::I64 => Data::Int(proto.int64_data.clone()),
        Encoding::U32 | Encoding::U64 => Data::Int(proto.uint64_data.iter().map(|&v| v as i64).collect()),
        Encoding::Bool => Data::Int(ints.iter().map(|&v| i64::from(v != 0)).collect()),
        Encoding::I8 | Encoding::U8 | Encoding::I16 | Encoding::U16 | Encoding::I32 => {
            Data::Int(ints.iter().map(|&v| v.into()).collect())
        }
    };
    let found = match &data {
        Data::Float(v) => v.len(),
        Data::Int(v) => v.len(),
    };
    if found != count {
        return refuse(format!("{:?} need {count} elements, the file has {found}", proto.dims));
    }
    if let (Data::Int(values), Some((low, high))) = (&data, encoding.integer_range())
        && values.iter().any(|&v| v < low || v > high)
    {
        return refuse("a value is outside the range of the element type");
    }
    Ok(data)
}

/// Where external data lies.
struct External {
    location: PathBuf,
    offset: u64,
    length: Option<u64>,
}

impl External {
    fn of(proto: &TensorProto) -> Result<Self, Refusal> {
        let mut external = Self { location: PathBuf::new(), offset: 0, length: None };
        let number = |text: &str| text.parse().map_err(|_| Refusal(format!("external data: \"{text}\" is no size")));
        for entry in &proto.external_data {
            let value = entry.value.as_deref().unwrap_or_default();
            match entry.key.as_deref().unwrap_or_default() {
                "location" => external.location = value.into(),
                "offset" => external.offset = number(value)?,
                "length" => external.length = Some(number(value)?),
                // A check sum only describes the data; the base path of some writers is their own folder.
                "checksum" | "basepath" => {}
                key => return refuse(format!("external data: the key \"{key}\" is unknown")),
            }
        }
        let mut parts = external.location.components().peekable();
        if parts.peek().is_none() || !parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return refuse(format!(
                "external data \"{}\" must be a path inside the model's folder",
                external.location.display()
            ));
        }
        Ok(external)
    }

    /// Reads `bytes` bytes. The file must lie in `folder` after resolving links.
    fn read(&self, folder: &Path, bytes: u64) -> Result<Vec<u8>, Refusal> {
        let fault =
            |why: &dyn std::fmt::Display| Refusal(format!("external data \"{}\": {why}", self.location.display()));
        let io = |error: std::io::Error| fault(&error);
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let folder = folder.canonicalize().map_err(io)?;
        let path = folder.join(&self.location).canonicalize().map_err(io)?;
        if !path.starts_with(&folder) {
            return Err(fault(&"the file lies outside the model's folder"));
        }
        // Asked before opening: opening a named pipe would wait for its writer.
        if !path.metadata().map_err(io)?.is_file() {
            return Err(fault(&"not a regular file"));
        }
        let mut file = std::fs::File::open(&path).map_err(io)?;
        let available = file.metadata().map_err(io)?.len();
        let length = self.length.unwrap_or(bytes);
        if length != bytes {
            return Err(fault(&format_args!("the tensor needs {bytes} bytes, the model states {length}")));
        }
        if self.offset.checked_add(length).is_none_or(|end| end > available) {
            return Err(fault(&format_args!(
                "{length} bytes from {} on are not there, the file has {available}",
                self.offset
            )));
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(io)?;
        let mut data = vec![0; usize::try_from(bytes).map_err(|e| fault(&e))?];
        file.read_exact(&mut data).map_err(io)?;
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::model::onnx::proto::tensor_proto::DataType;

    fn values(proto: &TensorProto) -> Result<Vec<f64>, String> {
        match read(proto, None, &mut Budget::default()).map_err(|Refusal(why)| why)?.data {
            Data::Float(v) => Ok(v.iter().copied().map(f64::from).collect()),
            Data::Int(v) => Ok(v.into_iter().map(|v| v as f64).collect()),
        }
    }

    fn tensor(kind: DataType, dims: &[i64]) -> TensorProto {
        TensorProto { data_type: Some(kind as i32), dims: dims.to_vec(), ..TensorProto::default() }
    }

    fn raw(kind: DataType, dims: &[i64], bytes: &[&[u8]]) -> TensorProto {
        TensorProto { raw_data: Some(bytes.concat().into()), ..tensor(kind, dims) }
    }

    #[test]
    fn raw_data_of_every_type() {
        let cases: Vec<(TensorProto, [f64; 2])> = vec![
            (raw(DataType::Float, &[2], &[&1.5f32.to_le_bytes(), &(-2f32).to_le_bytes()]), [1.5, -2.0]),
            (raw(DataType::Double, &[2], &[&1.5f64.to_le_bytes(), &(-2f64).to_le_bytes()]), [1.5, -2.0]),
            (raw(DataType::Float16, &[2], &[&[0x00, 0x3e], &[0x00, 0xc0]]), [1.5, -2.0]),
            (raw(DataType::Bfloat16, &[2], &[&[0xc0, 0x3f], &[0x00, 0xc0]]), [1.5, -2.0]),
            (raw(DataType::Int8, &[2], &[&[0x80, 0x7f]]), [-128.0, 127.0]),
            (raw(DataType::Uint8, &[2], &[&[0x80, 0x7f]]), [128.0, 127.0]),
            (raw(DataType::Int16, &[2], &[&[0, 0x80, 1, 0]]), [-32768.0, 1.0]),
            (raw(DataType::Uint16, &[2], &[&[0, 0x80, 1, 0]]), [32768.0, 1.0]),
            (raw(DataType::Int32, &[2], &[&(-7i32).to_le_bytes(), &9i32.to_le_bytes()]), [-7.0, 9.0]),
            (raw(DataType::Uint32, &[2], &[&u32::MAX.to_le_bytes(), &9u32.to_le_bytes()]), [4_294_967_295.0, 9.0]),
            (raw(DataType::Int64, &[2], &[&(-7i64).to_le_bytes(), &9i64.to_le_bytes()]), [-7.0, 9.0]),
            (raw(DataType::Uint64, &[2], &[&7u64.to_le_bytes(), &9u64.to_le_bytes()]), [7.0, 9.0]),
            (raw(DataType::Bool, &[2], &[&[0, 1]]), [0.0, 1.0]),
        ];
        for (proto, wanted) in cases {
            assert_eq!(values(&proto).unwrap(), wanted, "{:?}", proto.data_type());
            // One element too few, one byte too many.
            let bytes = proto.raw_data.clone().unwrap();
            assert!(values(&TensorProto { dims: vec![3], ..proto.clone() }).unwrap_err().contains("bytes"));
            let longer = [&bytes[..], &[0]].concat().into();
            assert!(values(&TensorProto { raw_data: Some(longer), ..proto }).unwrap_err().contains("bytes"));
        }
    }

    #[test]
    fn typed_data_of_every_type() {
        let small = |kind| TensorProto { int32_data: vec![1, 0], ..tensor(kind, &[2]) };
        for kind in
            [DataType::Int8, DataType::Uint8, DataType::Int16, DataType::Uint16, DataType::Int32, DataType::Bool]
        {
            assert_eq!(values(&small(kind)).unwrap(), [1.0, 0.0], "{kind:?}");
            assert!(values(&TensorProto { dims: vec![3], ..small(kind) }).unwrap_err().contains("elements"));
        }
        let halves = TensorProto { int32_data: vec![0x3e00, 0xc000], ..tensor(DataType::Float16, &[2]) };
        assert_eq!(values(&halves).unwrap(), [1.5, -2.0]);
        let brains = TensorProto { int32_data: vec![0x3fc0, 0xc000], ..tensor(DataType::Bfloat16, &[2]) };
        assert_eq!(values(&brains).unwrap(), [1.5, -2.0]);
        let floats = TensorProto { float_data: vec![1.5, -2.0], ..tensor(DataType::Float, &[2]) };
        assert_eq!(values(&floats).unwrap(), [1.5, -2.0]);
        let doubles = TensorProto { double_data: vec![1.5, -2.0], ..tensor(DataType::Double, &[2]) };
        assert_eq!(values(&doubles).unwrap(), [1.5, -2.0]);
        let longs = TensorProto { int64_data: vec![1 << 40, -1], ..tensor(DataType::Int64, &[2]) };
        assert_eq!(values(&longs).unwrap(), [f64::from(1u32 << 20) * f64::from(1u32 << 20), -1.0]);
        for kind in [DataType::Uint32, DataType::Uint64] {
            let unsigned = TensorProto { uint64_data: vec![3, 4], ..tensor(kind, &[2]) };
            assert_eq!(values(&unsigned).unwrap(), [3.0, 4.0]);
        }
        let outside = TensorProto { int32_data: vec![300, 0], ..tensor(DataType::Uint8, &[2]) };
        assert!(values(&outside).unwrap_err().contains("range"));
        let huge = TensorProto { uint64_data: vec![u64::MAX], ..tensor(DataType::Uint64, &[1]) };
        assert!(values(&huge).is_err());
    }

    /// Writers may pack numbers or not, whatever the schema says.
    #[test]
    fn packed_and_unpacked_numbers_are_the_same() {
        // Field 1 is dims, 2 the type (1 is float), 4 float_data.
        let floats = [1.5f32.to_le_bytes(), 2f32.to_le_bytes()];
        let packed = [&[0x0a, 2, 1, 2, 0x10, 1, 0x22, 8][..], &floats[0], &floats[1]].concat();
        let unpacked = [&[0x08, 1, 0x08, 2, 0x10, 1, 0x25][..], &floats[0], &[0x25], &floats[1]].concat();
        for bytes in [packed, unpacked] {
            let proto = TensorProto::decode(&bytes[..]).unwrap();
            assert_eq!(proto.dims, [1, 2]);
            assert_eq!(values(&proto).unwrap(), [1.5, 2.0]);
        }
    }

    #[test]
    fn zero_dimensions_have_no_elements() {
        assert_eq!(values(&tensor(DataType::Float, &[0])).unwrap(), [0f64; 0]);
        assert_eq!(values(&raw(DataType::Int64, &[3, 0], &[])).unwrap(), [0f64; 0]);
    }
}
