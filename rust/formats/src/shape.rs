//! What a column is: its Arrow type, with those of the columns within.

use serde_json::Value;

use crate::program::{ProgramError, array, text};

/// A type, with names and types of what is within.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// As the Arrow C data interface writes it.
    pub format: String,
    pub children: Vec<(String, Shape)>,
}

impl Shape {
    /// Reads `[format, [[name, shape], ...]]`.
    pub fn parse(told: &str) -> Result<Self, ProgramError> {
        let value = serde_json::from_str(told).map_err(|error| ProgramError(error.to_string()))?;
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
