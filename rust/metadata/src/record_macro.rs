//! Generates the struct, its codec and its schema from one description.

/// Describes structures. `name: Type = default, since` in wire order, then `tagged` fields by ascending tag. A field
/// that a version does not have must have its default when that version is written (no field of a metadata record is
/// ignorable).
macro_rules! structures {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? {
            $( $(#[$field_doc:meta])* $field:ident : $ty:ty = $default:expr, $since:literal; )*
        }
        tagged {
            $( $(#[$tag_doc:meta])* $tag:literal $tagged:ident : $tagged_ty:ty = $tagged_default:expr, $tagged_since:literal; )*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name $(<$life>)? {
            $( $(#[$field_doc])* pub $field: $ty, )*
            $( $(#[$tag_doc])* pub $tagged: $tagged_ty, )*
        }

        impl $(<$life>)? Default for $name $(<$life>)? {
            fn default() -> Self {
                Self {
                    $( $field: $default, )*
                    $( $tagged: $tagged_default, )*
                }
            }
        }

        impl $(<$life>)? Described for $name $(<$life>)? {
            const SCHEMA: StructSchema = StructSchema {
                name: stringify!($name),
                fields: &[
                    $( FieldSchema {
                        name: stringify!($field),
                        field_type: <$ty as Field>::TYPE,
                        nullable: <$ty as Field>::NULLABLE,
                        since: $since,
                        tag: None,
                        default: default_value(stringify!($default)),
                    }, )*
                    $( FieldSchema {
                        name: stringify!($tagged),
                        field_type: <$tagged_ty as Field>::TYPE,
                        nullable: <$tagged_ty as Field>::NULLABLE,
                        since: $tagged_since,
                        tag: Some($tag),
                        default: default_value(stringify!($tagged_default)),
                    }, )*
                ],
            };
        }

        impl<'f $(, $life)?> Field<'f> for $name $(<$life>)? $( where 'f: $life, $life: 'f )? {
            const TYPE: FieldType = FieldType::Struct(&<Self as Described>::SCHEMA);
            const SIZE_MIN: usize = 1 $( + if $since == 0 { <$ty as Field>::SIZE_MIN } else { 0 } )*;

            // A record without fields reads and writes only its tagged fields section.
            #[allow(unused_variables, unused_mut)]
            #[inline]
            fn read(reader: &mut Reader<'f>, version: i16) -> Result<Self, WireError> {
                let mut value = Self::default();
                $(
                    if $since == 0 || version >= $since {
                        value.$field = Field::read(reader, version)?;
                    }
                )*
                reader.tagged_fields(|tag, field| match tag {
                    $(
                        $tag if version >= $tagged_since => {
                            value.$tagged = Field::read(field, version)?;
                            Ok(true)
                        }
                    )*
                    _ => Ok(false),
                })?;
                Ok(value)
            }

            #[allow(unused_variables, unused_mut)]
            #[inline]
            fn write(&self, writer: &mut Writer, version: i16) -> Result<(), FieldError> {
                let record = stringify!($name);
                $(
                    if $since == 0 || version >= $since {
                        self.$field.write(writer, version)?;
                    } else if self.$field != $default {
                        return Err(FieldError::NotInVersion { record, field: stringify!($field), version });
                    }
                )*
                let mut tagged_count = 0;
                $(
                    if self.$tagged != $tagged_default {
                        if version < $tagged_since {
                            return Err(FieldError::NotInVersion { record, field: stringify!($tagged), version });
                        }
                        tagged_count += 1;
                    }
                )*
                writer.unsigned_varint(tagged_count);
                $(
                    if self.$tagged != $tagged_default {
                        let mut written = Ok(());
                        writer.tagged_field($tag, |field| written = self.$tagged.write(field, version));
                        written?;
                    }
                )*
                Ok(())
            }
        }
    )*};
}

/// Describes the records: `id Variant Struct versions 0..=max`.
macro_rules! records {
    ($( $id:literal $variant:ident $ty:ident $(<$life:lifetime>)?, $version_max:literal; )*) => {
        /// Any metadata record, borrowed from the bytes from which it was parsed.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Record<'r> {
            $( $variant($ty $(<$life>)?), )*
        }

        /// Every record by ascending id.
        pub const SCHEMAS: &[RecordSchema] = &[
            $( RecordSchema { id: $id, version_max: $version_max, body: &<$ty as Described>::SCHEMA }, )*
        ];

        impl<'r> Record<'r> {
            /// Id of the record in its frame.
            pub fn id(&self) -> i16 {
                match self { $( Record::$variant(_) => $id, )* }
            }

            /// Name as in Apache Kafka.
            pub fn name(&self) -> &'static str {
                match self { $( Record::$variant(_) => stringify!($ty), )* }
            }

            pub(super) fn read_body(reader: &mut Reader<'r>, id: i16, version: i16) -> Result<Option<Self>, WireError> {
                Ok(Some(match id {
                    $( $id => Record::$variant(Field::read(reader, version)?), )*
                    _ => return Ok(None),
                }))
            }

            pub(super) fn write_body(&self, writer: &mut Writer, version: i16) -> Result<(), FieldError> {
                match self { $( Record::$variant(body) => body.write(writer, version), )* }
            }
        }

        $(
            impl<'r> From<$ty $(<$life>)?> for Record<'r> {
                fn from(body: $ty $(<$life>)?) -> Self {
                    Record::$variant(body)
                }
            }
        )*
    };
}

pub(super) use {records, structures};
