"""Holds answers of a live hub against docs/openapi.yaml: documented status, body as its schema says. Only what the file
uses of JSON Schema is understood; anything else is an error, so that nothing is passed over."""
import os
import re

import yaml

from hub_process import SOURCE

KNOWN = {"$ref", "type", "properties", "required", "additionalProperties", "items", "enum", "oneOf", "minimum", "maximum",
         "minItems", "maxItems", "description", "default"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


class Document:
    def __init__(self):
        with open(os.path.join(SOURCE, "docs", "openapi.yaml")) as file:
            self.root = yaml.safe_load(file)
        self.seen = set()

    def resolve(self, node):
        while "$ref" in node:
            target = self.root
            for name in node["$ref"].removeprefix("#/").split("/"):
                target = target[name]
            node = target
        return node

    def operation(self, method, path):
        """(template, operation) of a request, or None: no such route is documented."""
        for template, item in self.root["paths"].items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path.split("?")[0]):
                found = item.get("get" if method == "HEAD" else method.lower())
                return (template, found) if found else None
        return None

    def check(self, method, path, status, body, headers=None):
        """Raises AssertionError where the answer is not as documented. `body`: decoded, where it is JSON. Requests of no
        route are not looked at."""
        found = self.operation(method, path)
        if found is None or status == 405:
            return
        template, operation = found
        where = f"{method} {template}: {status}"
        assert str(status) in operation["responses"], f"{where} is not documented"
        self.seen.add((method, template, str(status)))
        response = self.resolve(operation["responses"][str(status)])
        content = response.get("content", {})
        if "application/json" in content:
            self.match(body, content["application/json"]["schema"], where)
        if headers is None:
            return
        if content:
            assert headers["Content-Type"].split(";")[0] in content, f"{where}: {headers['Content-Type']} is not documented"
        for name, header in response.get("headers", {}).items():
            header = self.resolve(header)
            assert name in headers or not header.get("required"), f"{where}: no {name}"
            self.match(headers[name], header["schema"], f"{where} {name}")

    def routes(self):
        return {f"{method.upper()} {template}" for template, item in self.root["paths"].items() for method in item}

    def documented(self, tag):
        return {(method.upper(), template, status) for template, item in self.root["paths"].items()
                for method, operation in item.items() if tag in operation.get("tags", [])
                for status in operation["responses"]}

    def match(self, value, schema, where):
        schema = self.resolve(schema)
        assert not set(schema) - KNOWN, f"{where}: this test does not know {set(schema) - KNOWN}"
        if "oneOf" in schema:
            fitting = [one for one in schema["oneOf"] if self.fits(value, one, where)]
            assert len(fitting) == 1, f"{where}: {value} fits {len(fitting)} of oneOf"
            return
        kind = schema["type"]
        ok = isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
        assert ok, f"{where}: {value!r} is no {kind}"
        assert value in schema.get("enum", [value]), f"{where}: {value!r} is none of {schema.get('enum')}"
        if kind == "object":
            properties = schema.get("properties", {})
            missing = set(schema.get("required", [])) - set(value)
            unknown = set(value) - set(properties) if schema.get("additionalProperties") is False else set()
            assert not missing and not unknown, f"{where}: missing {missing}, not documented {unknown}"
            for name in set(value) & set(properties):
                self.match(value[name], properties[name], f"{where} {name}")
        elif kind == "array":
            assert schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)), f"{where}: {len(value)} items"
            for index, item in enumerate(value):
                self.match(item, schema["items"], f"{where}[{index}]")
        elif kind in ("integer", "number"):
            assert schema.get("minimum", value) <= value <= schema.get("maximum", value), f"{where}: {value}"

    def fits(self, value, schema, where):
        try:
            self.match(value, schema, where)
            return True
        except AssertionError:
            return False
