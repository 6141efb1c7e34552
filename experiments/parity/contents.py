"""Contents of files for the marks of kept units: comments, docstrings and layout do not count."""

import ast
import json


def configuration_contents(text):
    """Returns the parsed configuration as JSON."""
    import yaml
    return json.dumps(yaml.safe_load(text), sort_keys=True)


def script_contents(text):
    """Returns the syntax tree of a Python script without its docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)
