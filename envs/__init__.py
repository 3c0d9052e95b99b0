"""Environments: thin faces of the engine for agents of other libraries."""
