//! A macro for read-only properties.

/// Writes the `#[pymethods]` of a class: a read-only property for each line (name, type, expression), then `rest` unchanged.
macro_rules! getters {
    ($class:ident { $($name:ident: $type:ty = |$it:ident| $value:expr;)* } $($rest:tt)*) => {
        #[pymethods]
        impl $class {
            $(
                #[getter]
                fn $name(&self) -> $type {
                    let $it = self;
                    $value
                }
            )*

            $($rest)*
        }
    };
}

pub(crate) use getters;
