"""Bytes to `Model`: the protobuf walked, decoded, sorted and held against limits; nothing is inferred."""
