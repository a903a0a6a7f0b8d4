"""Tables and figures of "How do vision transformers work?" (Park and Kim 2022)."""
