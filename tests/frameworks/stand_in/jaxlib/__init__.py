"""A stand-in for jaxlib, whose version the package asks for."""
