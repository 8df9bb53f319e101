"""From the configuration file of a published model to a manifest.

Reading (json_text), understanding (families, refused, fields, rope, understand) and choosing tables for boards (boards) are pure;
toml_text makes the manifest's text, and command is the rim that reads and writes files. A new family is a row of families.TABLE.
"""
