//! All schemas that a node knows.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::job::{self, Job, Output};
use super::model::Schema;
use super::{MAX_INPUT_BYTES, MAX_OUTPUT_BYTES, SchemaId, check, code};
use crate::json::{self, Limits};
use crate::problems::Problems;
use crate::{Error, Result};

/// The schemas by id. The built-in ones are always there and cannot be changed.
#[derive(Debug, Clone)]
pub struct Registry {
    schemas: BTreeMap<SchemaId, Schema>,
}

const BUILTIN: [&str; 5] = [
    include_str!("../../schemas/guild.benchmark.v1.json"),
    include_str!("../../schemas/oa.code_chunk_analysis.v1.json"),
    include_str!("../../schemas/oa.embedding.v1.json"),
    include_str!("../../schemas/oa.retrieval_rerank.v1.json"),
    include_str!("../../schemas/oa.sandbox_run.v1.json"),
];

static BUILTIN_REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    // The unit test below proves that every file can be read, so that none is left out here.
    let schemas = BUILTIN.iter().filter_map(|text| Schema::parse(text.as_bytes()).ok());
    Registry { schemas: schemas.map(|schema| (schema.schema_id.clone(), schema)).collect() }
});

impl Registry {
    /// The built-in schemas.
    pub fn builtin() -> Registry {
        BUILTIN_REGISTRY.clone()
    }

    /// Whether a schema is one of the built-in ones.
    pub fn is_builtin(id: &SchemaId) -> bool {
        BUILTIN_REGISTRY.schemas.contains_key(id)
    }

    /// Reads a schema document and adds it. See [`Registry::add`].
    pub fn add_json(&mut self, text: &[u8]) -> Result<SchemaId, Problems> {
        self.add(Schema::parse(text)?)
    }

    /// Adds a schema. The same schema again changes nothing; another one under a known id is refused, because jobs
    /// that were agreed on under that id would change their meaning.
    pub fn add(&mut self, schema: Schema) -> Result<SchemaId, Problems> {
        check::schema(&schema)?;
        let id = schema.schema_id.clone();
        if let Some(known) = self.schemas.get(&id) {
            if known.hash()? != schema.hash()? {
                let which = if Registry::is_builtin(&id) { "built in" } else { "registered" };
                let message = format!("{id} is already {which} with another content");
                return Err(Error::new(&code::REDEFINED, message).at("schema_id").into());
            }
            return Ok(id);
        }
        self.schemas.insert(id.clone(), schema);
        Ok(id)
    }

    /// Every schema, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Schema> {
        self.schemas.values()
    }

    /// The schema with this id.
    pub fn get(&self, id: &SchemaId) -> Result<&Schema> {
        self.schemas
            .get(id)
            .ok_or_else(|| Error::new(&code::UNKNOWN, format!("no schema {id} is registered")))
    }

    /// Checks the payload of a request and fills in its defaults.
    pub fn validate_input(&self, id: &SchemaId, payload: &Value) -> Result<Job, Problems> {
        job::input(self.get(id)?, payload)
    }

    /// As [`Registry::validate_input`], from a text that is read strictly.
    pub fn validate_input_text(&self, id: &SchemaId, text: &[u8]) -> Result<Job, Problems> {
        self.validate_input(id, &read(text, MAX_INPUT_BYTES)?)
    }

    /// Checks the output of a provider and fills in its defaults.
    pub fn validate_output(&self, id: &SchemaId, output: &Value) -> Result<Output, Problems> {
        job::output(self.get(id)?, output)
    }

    /// As [`Registry::validate_output`], from a text that is read strictly.
    pub fn validate_output_text(&self, id: &SchemaId, text: &[u8]) -> Result<Output, Problems> {
        self.validate_output(id, &read(text, MAX_OUTPUT_BYTES)?)
    }
}

fn read(text: &[u8], max_bytes: usize) -> Result<Value> {
    json::decode_within(text, Limits { max_bytes, ..Limits::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_file_is_a_good_schema_with_the_id_of_its_name() {
        for text in BUILTIN {
            let schema = Schema::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
            assert!(!schema.purpose.is_empty());
            assert_eq!(schema.provenance.len(), 4, "{}", schema.schema_id);
        }
        let ids: Vec<String> =
            Registry::builtin().iter().map(|s| s.schema_id.to_string()).collect();
        assert_eq!(
            ids,
            [
                "guild.benchmark.v1",
                "oa.code_chunk_analysis.v1",
                "oa.embedding.v1",
                "oa.retrieval_rerank.v1",
                "oa.sandbox_run.v1"
            ]
        );
    }
}
