"""Export encoders to the formats of other libraries."""
