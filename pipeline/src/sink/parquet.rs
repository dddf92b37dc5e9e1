//! Apache Parquet by its column writers: columns `path, path_bytes, width, height, decoder, partial`, the list `top` of
//! `class, label, score`, and the group `error` of `stage, kind, message`; where there are several models also `model`.

use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Type as PhysicalType};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, FloatType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::{Field, Row as Record};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::SchemaDescriptor;
use serde_json::{Map, Value};

use super::Row;
use crate::error::{ItemError, JobError};
use crate::frame::Scored;

/// Rows a row group holds, and so rows in memory.
const GROUP_ROWS: usize = 16 * 1024;

const SCHEMA: &str = "message row {
    optional binary path (UTF8);
    optional binary path_bytes (UTF8);
    optional binary model (UTF8);
    optional int32 width;
    optional int32 height;
    optional binary decoder (UTF8);
    required boolean partial;
    optional group top (LIST) { repeated group list { required group element {
        required int32 class;
        required binary label (UTF8);
        required float score;
    } } }
    optional group error {
        required binary stage (UTF8);
        required binary kind (UTF8);
        required binary message (UTF8);
    }
}";

/// The column that is only there where there are several models.
const MODEL: &str = "    optional binary model (UTF8);\n";

fn own_schema(several_models: bool) -> Result<SchemaDescriptor, ParquetError> {
    let schema = if several_models { SCHEMA.to_owned() } else { SCHEMA.replace(MODEL, "") };
    parse_message_type(&schema).map(|schema| SchemaDescriptor::new(Arc::new(schema)))
}

/// Names and types of the columns.
fn columns(schema: &SchemaDescriptor) -> Vec<(String, PhysicalType)> {
    schema.columns().iter().map(|column| (column.path().string(), column.physical_type())).collect()
}

fn failure(path: &Path) -> impl Fn(ParquetError) -> JobError {
    let what = format!("cannot write {}", path.display());
    move |e| JobError::io(what.clone(), io::Error::other(e))
}

/// Writes the rows of JSON lines into a Parquet file.
pub(super) fn write(jsonl: impl BufRead, several_models: bool, path: &Path) -> Result<(), JobError> {
    let io = |e: io::Error| JobError::io(format!("cannot write {}", path.display()), e);
    let failed = failure(path);
    let schema = own_schema(several_models).map_err(&failed)?.root_schema_ptr();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let file = File::create(path).map_err(io)?;
    let mut writer = SerializedFileWriter::new(&file, schema, Arc::new(properties)).map_err(&failed)?;
    let mut rows = Vec::new();
    for line in jsonl.split(b'\n') {
        rows.push(serde_json::from_slice(&line.map_err(io)?).map_err(|e| io(e.into()))?);
        if rows.len() == GROUP_ROWS {
            write_group(&mut writer, &rows, several_models).map_err(&failed)?;
            rows.clear();
        }
    }
    write_group(&mut writer, &rows, several_models).map_err(&failed)?;
    writer.close().map_err(&failed)?;
    file.sync_all().map_err(io)
}

fn write_group(
    writer: &mut SerializedFileWriter<&File>,
    rows: &[Row],
    several_models: bool,
) -> Result<(), ParquetError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut group = writer.next_row_group()?;
    let text = |s: &String| ByteArray::from(s.as_str());
    optional::<ByteArrayType>(&mut group, rows, |r| r.path.as_ref().map(text))?;
    optional::<ByteArrayType>(&mut group, rows, |r| r.path_bytes.as_ref().map(text))?;
    if several_models {
        optional::<ByteArrayType>(&mut group, rows, |r| r.model.as_deref().map(ByteArray::from))?;
    }
    optional::<Int32Type>(&mut group, rows, |r| r.width.map(|w| w as i32))?;
    optional::<Int32Type>(&mut group, rows, |r| r.height.map(|h| h as i32))?;
    optional::<ByteArrayType>(&mut group, rows, |r| r.decoder.map(|d| text(&d.to_string())))?;
    let partial: Vec<bool> = rows.iter().map(|r| r.partial).collect();
    column::<BoolType>(&mut group, &partial, None, None)?;
    list::<Int32Type>(&mut group, rows, |s| s.class as i32)?;
    list::<ByteArrayType>(&mut group, rows, |s| ByteArray::from(&*s.label))?;
    list::<FloatType>(&mut group, rows, |s| s.score)?;
    let error = |field: fn(&ItemError) -> String| move |r: &Row| r.error.as_ref().map(|e| text(&field(e)));
    optional::<ByteArrayType>(&mut group, rows, error(|e| e.stage.to_string()))?;
    optional::<ByteArrayType>(&mut group, rows, error(|e| e.kind.to_string()))?;
    optional::<ByteArrayType>(&mut group, rows, error(|e| e.message.clone()))?;
    group.close()?;
    Ok(())
}

/// Writes the next column: its values, their definition levels (how much of the path to the value exists) and repetition
/// levels (0 starts a row, 1 continues its list).
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &File>,
    values: &[T::T],
    definition: Option<&[i16]>,
    repetition: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let next = group.next_column()?;
    let mut column = next.ok_or_else(|| ParquetError::General("more columns than the schema has".into()))?;
    column.typed::<T>().write_batch(values, definition, repetition)?;
    column.close()
}

fn optional<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &File>,
    rows: &[Row],
    value: impl Fn(&Row) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = rows.iter().map(value).collect();
    let definition: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    column::<T>(group, &values, Some(&definition), None)
}

/// A column below `top`: definition 0 where there is no list, 1 where it is empty, 2 for each of its elements.
fn list<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &File>,
    rows: &[Row],
    value: impl Fn(&Scored) -> T::T,
) -> Result<(), ParquetError> {
    let (mut values, mut definition, mut repetition) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let results = row.top.as_deref().map_or(&[][..], Vec::as_slice);
        if results.is_empty() {
            definition.push(i16::from(row.top.is_some()));
            repetition.push(0);
        }
        for (i, scored) in results.iter().enumerate() {
            values.push(value(scored));
            definition.push(2);
            repetition.push(i16::from(i > 0));
        }
    }
    column::<T>(group, &values, Some(&definition), Some(&repetition))
}

/// Writes the rows of a Parquet file as JSON lines.
pub(super) fn to_jsonl(path: &Path, jsonl: &Path) -> Result<(), JobError> {
    let unusable = |e: ParquetError| {
        let message = format!("{}: not a Parquet file of this program ({e}); --overwrite replaces it", path.display());
        JobError::Usage(message)
    };
    let io = |e: io::Error| JobError::io(format!("cannot write {}", jsonl.display()), e);
    let source = File::open(path).map_err(|e| JobError::io(format!("cannot read {}", path.display()), e))?;
    let reader = SerializedFileReader::new(source).map_err(unusable)?;
    // Its other columns would be lost.
    let own = [false, true].map(own_schema).into_iter().collect::<Result<Vec<_>, _>>().map_err(unusable)?;
    let found = columns(reader.metadata().file_metadata().schema_descr());
    if !own.iter().any(|own| columns(own) == found) {
        return Err(unusable(ParquetError::General("it has other columns".into())));
    }
    let file = File::create(jsonl).map_err(io)?;
    let mut writer = BufWriter::new(&file);
    for record in reader.get_row_iter(None).map_err(unusable)? {
        let row: Row = serde_json::from_value(json_of_record(&record.map_err(unusable)?))
            .map_err(|e| unusable(ParquetError::General(e.to_string())))?;
        serde_json::to_writer(&mut writer, &row).map_err(|e| io(e.into()))?;
        writer.write_all(b"\n").map_err(io)?;
    }
    writer.flush().and_then(|()| file.sync_all()).map_err(io)
}

fn json_of_record(record: &Record) -> Value {
    let fields = record.get_column_iter().map(|(name, field)| (name.clone(), json_of(field)));
    Value::Object(fields.filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
}

fn json_of(field: &Field) -> Value {
    match field {
        Field::Bool(b) => Value::from(*b),
        Field::Int(i) => Value::from(*i),
        Field::UInt(u) => Value::from(*u),
        Field::Float(f) => Value::from(*f),
        Field::Str(s) => Value::from(s.as_str()),
        Field::Group(record) => json_of_record(record),
        Field::ListInternal(list) => Value::Array(list.elements().iter().map(json_of).collect()),
        _ => Value::Null,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A Parquet file of somebody else, with one column like ours.
    pub(in super::super) fn foreign() -> Vec<u8> {
        let schema = "message x { optional binary path (UTF8); optional binary caption (UTF8); }";
        let mut bytes = Vec::new();
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            column.typed::<ByteArrayType>().write_batch(&["a".into()], Some(&[1]), None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        bytes
    }
}
