"""The doors to the engine, one package a protocol, which do not know each other: translate, call, translate."""
