"""The commands of scripts/, and what README.md says of them and of the package."""
