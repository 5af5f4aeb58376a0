//! Properties of a class, a line each.

/// `#[pymethods]` of a class: read-only properties, each with its type and where it comes from, and then `rest`, if any,
/// as it would stand there.
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
