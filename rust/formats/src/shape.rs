//! The Arrow type of a column and of its children.

use serde_json::Value;

use crate::program::{ProgramError, array, text};

/// A type, with the names and types of its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// A format string of the Arrow C data interface.
    pub format: String,
    pub children: Vec<(String, Shape)>,
}

impl Shape {
    /// Reads `[format, [[name, shape], ...]]`.
    pub fn parse(json: &str) -> Result<Self, ProgramError> {
        let value = serde_json::from_str(json).map_err(|error| ProgramError(error.to_string()))?;
        Self::of(&value)
    }

    fn of(value: &Value) -> Result<Self, ProgramError> {
        let [format, children] = array(value)? else { return Err(ProgramError::of("a shape", value)) };
        let child = |value: &Value| match array(value)? {
            [name, shape] => Ok((text(name)?.to_owned(), Self::of(shape)?)),
            _ => Err(ProgramError::of("a child of a shape", value)),
        };
        let children: Vec<_> = array(children)?.iter().map(child).collect::<Result<_, _>>()?;
        let format = text(format)?.to_owned();
        let wanted = match format.as_str() {
            "+l" => Some(1),
            "+m" => Some(1),
            "+s" => None,
            _ => Some(0),
        };
        if wanted.is_some_and(|wanted| wanted != children.len()) {
            return Err(ProgramError(format!("the type '{format}' has {} children", children.len())));
        }
        Ok(Self { format, children })
    }
}
