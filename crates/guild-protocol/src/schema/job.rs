//! A payload and an output that have passed every check, and their hashes.

use serde::Serialize;
use serde_json::{Map, Value};

use super::model::{Field, Fields, Schema};
use super::provenance::{self, Detail};
use super::validate::Walk;
use super::{MAX_INPUT_BYTES, MAX_OUTPUT_BYTES, PROVENANCE, SchemaId, code};
use crate::hash::Hash;
use crate::json;
use crate::problems::{Gathered, Place, Problems};
use crate::{Error, Result};

/// A checked and normalised request for work.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    schema_id: SchemaId,
    payload: Value,
    payload_hash: Hash,
    job_hash: Hash,
}

impl Job {
    /// What kind of work it is.
    pub fn schema_id(&self) -> &SchemaId {
        &self.schema_id
    }

    /// The payload with every default filled in.
    pub fn payload(&self) -> &Value {
        &self.payload
    }

    /// The payload, taken out.
    pub fn into_payload(self) -> Value {
        self.payload
    }

    /// Identifies the job: the hash over `{"schema_id": …, "payload": …}`. The id is part of it, because the same
    /// payload under two schemas is two jobs.
    pub fn job_hash(&self) -> Hash {
        self.job_hash
    }

    /// The hash over the payload alone, as systems before this one named their jobs.
    pub fn payload_hash(&self) -> Hash {
        self.payload_hash
    }
}

/// A checked and normalised result of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    value: Value,
    output_hash: Hash,
    lacking: Vec<Detail>,
}

impl Output {
    /// The output fields and `provenance`, defaults filled in, under the names we write.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The output, taken out.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The hash over all output fields. `provenance` is left out: its `output_sha256` carries this hash.
    pub fn output_hash(&self) -> Hash {
        self.output_hash
    }

    /// The recommended details that the provenance does not give.
    pub fn lacking(&self) -> &[Detail] {
        &self.lacking
    }
}

/// The hash over a payload alone, taken as it is.
pub fn payload_hash(payload: &Value) -> Result<Hash> {
    json::hash(payload)
}

pub(super) fn input(schema: &Schema, payload: &Value) -> Result<Job, Problems> {
    let mut gathered = Gathered::default();
    let payload = Walk::new(&mut gathered).object(&schema.inputs, payload, &Place::Top);
    let payload = gathered.unless_any(payload)?;
    #[derive(Serialize)]
    struct Preimage<'a> {
        schema_id: &'a SchemaId,
        payload: &'a Value,
    }
    let preimage = Preimage { schema_id: &schema.schema_id, payload: &payload };
    Ok(Job {
        schema_id: schema.schema_id.clone(),
        payload_hash: hash_within(&payload, MAX_INPUT_BYTES)?,
        job_hash: json::hash(&preimage)?,
        payload,
    })
}

pub(super) fn output(schema: &Schema, output: &Value) -> Result<Output, Problems> {
    let mut gathered = Gathered::default();
    let mut walk = Walk::new(&mut gathered);
    let normal = walk.object_beside(&schema.outputs, output, &Place::Top, Some(PROVENANCE));
    let (provenance, lacking) = match output {
        Value::Object(members) => {
            provenance::check(&mut walk, &schema.provenance, members.get(PROVENANCE))
        }
        _ => (None, Vec::new()),
    };
    let mut value = gathered.unless_any(normal)?;
    let output_hash = hash_within(&value, MAX_OUTPUT_BYTES)?;
    if let (Some(members), Some(provenance)) = (value.as_object_mut(), provenance) {
        members.insert(PROVENANCE.to_owned(), provenance);
    }
    Ok(Output { value, output_hash, lacking })
}

fn hash_within(value: &Value, max_bytes: usize) -> Result<Hash> {
    let canonical = json::to_canonical(value)?;
    if canonical.len() > max_bytes {
        let message = format!("{} bytes are more than the limit of {max_bytes}", canonical.len());
        return Err(Error::new(&code::SIZE, message));
    }
    Ok(Hash::of(&canonical))
}

/// The part of an output on which honest providers agree: without `provenance`, and without every field that the
/// schema marks `"compared": false` (durations, host names, explanations).
///
/// Comparing whole outputs can never find a majority, because each names its own provider and time.
pub fn verification_projection(schema: &Schema, output: &Output) -> Value {
    project_members(&schema.outputs, &output.value)
}

/// The hash over the [`verification_projection`].
pub fn verification_hash(schema: &Schema, output: &Output) -> Result<Hash> {
    json::hash(&verification_projection(schema, output))
}

fn project_members(fields: &Fields, value: &Value) -> Value {
    let mut kept = Map::new();
    for (name, field) in fields.iter().filter(|(_, field)| field.is_compared()) {
        if let Some(value) = value.get(name) {
            kept.insert(name.clone(), project(field, value));
        }
    }
    Value::Object(kept)
}

fn project(field: &Field, value: &Value) -> Value {
    match (value, &field.items, &field.fields, &field.values) {
        (Value::Array(items), Some(field), _, _) => {
            Value::Array(items.iter().map(|item| project(field, item)).collect())
        }
        (Value::Object(_), _, Some(fields), _) => project_members(fields, value),
        (Value::Object(members), _, _, Some(field)) => {
            Value::Object(members.iter().map(|(k, v)| (k.clone(), project(field, v))).collect())
        }
        _ => value.clone(),
    }
}
