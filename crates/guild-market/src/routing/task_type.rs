//! The name of a kind of work.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::code;
use crate::{Error, Result};

/// The longest name.
const MAX_BYTES: usize = 100;

/// Names a kind of work: the id of a schema, or a word such as `benchmark-task`. Printable ASCII without spaces, so it
/// can stand anywhere.
///
/// ```
/// use guild_market::routing::TaskType;
/// assert_eq!("oa.embedding.v1".parse::<TaskType>().unwrap().as_str(), "oa.embedding.v1");
/// assert!("two words".parse::<TaskType>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskType(String);

impl TaskType {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TaskType {
    type Err = Error;

    fn from_str(text: &str) -> Result<TaskType> {
        TaskType::try_from(text.to_owned())
    }
}

impl TryFrom<String> for TaskType {
    type Error = Error;

    fn try_from(text: String) -> Result<TaskType> {
        let fits = !text.is_empty() && text.len() <= MAX_BYTES;
        if fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(TaskType(text));
        }
        let why = format!("the name of a task type has 1 to {MAX_BYTES} visible ASCII characters");
        Err(Error::refused(&code::ROUTE_TASK, why))
    }
}

impl From<TaskType> for String {
    fn from(task: TaskType) -> String {
        task.0
    }
}

impl fmt::Display for TaskType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
