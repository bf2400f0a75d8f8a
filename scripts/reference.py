"""Fills the pages of docs/reference from the code, as a hook of mkdocs.

A line ``<!-- generated: NAME -->`` of a page, with the quotation below it, is replaced by what the function
of that name in ``PARTS`` returns: Markdown made of parsers, models, tables and docstrings, each of which is
documented in one place. The quotation is for those who read the page in a checkout.

The reference has two parts, one for each distribution. mild_gateway is imported only by the functions that
make its part.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import json
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

LIBRARY = "mild-learn"
GATEWAY = "mild-gateway"
OPENAPI = Path(__file__).parents[1] / "docs" / "reference" / "openapi.json"
MARKER = re.compile(r"^<!-- generated: ([a-z_]+) -->$(?:\n> .*)*", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The hook: the page with its generated parts."""
    return MARKER.sub(lambda marker: PARTS[marker[1]](), markdown)


def make_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def attribute_docs(kind: type) -> dict[str, str]:
    """What the docstrings behind the fields of a class say, by field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    return {
        field.target.id: text.value.value
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


# mild.toml and experts.toml


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a configuration file."""

    name: str
    rule: str
    default: Any
    text: str


def settings_of(kind: Any, defaults: Mapping[str, Any] | None = None) -> list[Setting]:
    """The settings of a model, with what its own ``other_keys`` add; tables within it are left out."""
    docs, found = attribute_docs(kind), []
    for name, field in kind.__pydantic_fields__.items():
        if name in getattr(kind, "internal", ()) or table_of(field.annotation) is not None:
            continue
        default = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else _toml(default)
        if name in (defaults or {}):
            shown = f"{shown or 'none'}; collect: {_toml(defaults[name])}"
        found.append(Setting(name, _rule(kind, name), shown, docs.get(name, "")))
    others = getattr(kind, "other_keys", ())
    if isinstance(others, Mapping):
        found += [Setting(name, "true or false" if name == "enabled" else "text", "", text)
                  for name, text in others.items()]  # fmt: skip
    return found


def table_of(annotation: Any) -> type | None:
    """The model of a setting that is a table, or a list of tables."""
    for kind in (annotation, *typing.get_args(annotation)):
        if dataclasses.is_dataclass(kind) and hasattr(kind, "__pydantic_fields__"):
            return kind
    return None


def _toml(value: Any) -> str:
    if value is None or value == () or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        # The rubric is longer than a cell, and its meaning says what it asks.
        return f'`"{" ".join(value.split())}"`' if 0 < len(value) < 100 else ""
    if isinstance(value, int):
        return f"`{value:_}`" if value >= 10_000 else f"`{value}`"
    return f"`{value:g}`"


def _rule(kind: Any, name: str) -> str:
    """What a value must be, in the words of the message for one that is not."""
    from pydantic import TypeAdapter, ValidationError

    annotation = typing.get_type_hints(kind, include_extras=True)[name]
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        annotation = next(one for one in typing.get_args(annotation) if one is not type(None))
    if typing.get_origin(annotation) is tuple:
        return "a list"
    if typing.get_origin(annotation) is dict or "dict[" in str(annotation)[:30]:
        return "a table"
    try:
        TypeAdapter(annotation).validate_python(object())
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        if found["type"] == "literal_error":
            return found["ctx"]["expected"].replace("'", '"')
        if found["type"] == "rule":
            said = re.sub(r"; got .*|,? ?(in quotes|not the key itself)", "", found["msg"])
            return said.removeprefix("must be ").replace("must hold", "text that holds")
    return "text"


def _settings_table(kind: Any, **more: Any) -> str:
    rows = [[f"`{one.name}`", one.rule, one.default, one.text] for one in settings_of(kind, **more)]
    return make_table(["setting", "value", "default", "meaning"], rows)


def _first_paragraph(kind: Any) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def gateway_settings() -> str:
    """The tables of mild.toml."""
    from mild_gateway.collect.config import COLLECT
    from mild_gateway.config import Settings

    parts = ["## Top level {#top-level}", _settings_table(Settings)]
    tables = {
        name: table_of(field.annotation) for name, field in Settings.__pydantic_fields__.items()
    }
    for name, kind in tables.items():
        if kind is None:
            continue
        title = "experts.NAME" if name == "experts" else name
        more = {"defaults": COLLECT} if name == "experts" else {}
        parts += [f"## `[{title}]` {{#{name}}}", _first_paragraph(kind)]
        parts.append(_settings_table(kind, **more))
        for inner, field in kind.__pydantic_fields__.items():
            below = table_of(field.annotation)
            if below is not None:
                parts += [f"### `[{title}.{inner}]` {{#{inner}}}", _first_paragraph(below)]
                parts.append(_settings_table(below))
    return "\n\n".join(parts)


def prompt_settings() -> str:
    """The table [prompts] of experts.toml."""
    from mild_gateway.collect.prompts import Prompts

    return _settings_table(Prompts)


# Metrics


def metrics() -> str:
    """Every metric of the gateway, read from its own page."""
    from prometheus_client.parser import text_string_to_metric_families

    from mild_gateway.metrics import Metrics

    line = {period: {"spent": 1.0, "budget": 2.0} for period in ("day", "month")}
    page = Metrics(["EXPERT"], lambda: {"all": line, "keys": {}}).render().decode()
    rows = []
    for family in text_string_to_metric_families(page):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels: dict[str, list[str]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le" and value not in labels.setdefault(label, []):
                    labels[label].append(value)
        shown = "; ".join(
            f"`{label}`" if label in ("expert", "key") else f"`{label}`: {', '.join(values)}"
            for label, values in labels.items()
        )
        rows.append([f"`{name}`", family.type, shown, family.documentation])
    return make_table(["metric", "type", "labels", "meaning"], rows)


# The ledger


def ledger_columns() -> dict[str, dict[str, tuple[str, str]]]:
    """Type and meaning of every column, by table."""
    from mild_gateway.ledger import feedback, records, store

    docs = {
        "decisions": attribute_docs(records.Record) | {"id": "Number of the row."},
        "feedback": attribute_docs(feedback.Feedback),
    }
    tables = [records.decisions, feedback.feedback, records.routers, store.minutes]
    return {
        table.name: {
            column.name: (
                str(column.type).lower() + (" or null" if column.nullable else ""),
                docs.get(table.name, {}).get(column.name) or column.doc or "",
            )
            for column in table.columns
        }
        for table in [*tables, store.workers, store.key_bytes]
    }


def ledger() -> str:
    """A table per table of the ledger."""
    parts = []
    for name, columns in ledger_columns().items():
        rows = [[f"`{column}`", kind, text] for column, (kind, text) in columns.items()]
        parts += [f"## {name}", make_table(["column", "type", "meaning"], rows)]
    return "\n\n".join(parts)


# The HTTP API


def http_paths() -> str:
    """Every path of openapi.json with its parameters, bodies and answers."""
    document = json.loads(OPENAPI.read_text("utf-8"))
    parts = []
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            parts += [f"## {method.upper()} {path}", one["description"]]
            parts.append("" if one["security"] else "No key is needed.")
            rows = [
                [f"`{found['name']}`", found["in"], found["description"]]
                for found in (_resolved(document, entry) for entry in one["parameters"])
            ]
            parts += [make_table(["parameter", "in", "meaning"], rows)] if rows else []
            if "requestBody" in one:
                parts += ["**Body**", _schema_table(document, _json_schema(one["requestBody"]))]
            for status, response in one["responses"].items():
                found = _resolved(document, response)
                if status != "default" and _json_schema(found) is not None:
                    table = _schema_table(document, _json_schema(found))
                    parts += [f"**Answer {status}:** {found['description']}", table]
    return "\n\n".join(part for part in parts if part)


def _resolved(document: Mapping[str, Any], part: Mapping[str, Any]) -> Any:
    """What a reference within the document points to."""
    found: Any = part
    while "$ref" in found:
        place = found["$ref"].removeprefix("#/").split("/")
        found = functools.reduce(lambda inner, key: inner[key], place, document)
    return found


def _json_schema(part: Mapping[str, Any]) -> Any:
    return part["content"].get("application/json", {}).get("schema")


def _schema_table(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """The fields of an object; of alternatives, those of the first."""
    found = _resolved(document, schema)
    found = _resolved(document, found["anyOf"][0]) if "anyOf" in found else found
    required, rows = found.get("required", ()), []
    for name, field in found.get("properties", {}).items():
        one = _resolved(document, field)
        kinds = one.get("type", "constant" if "const" in one else "any")
        kind = " or ".join([kinds] if isinstance(kinds, str) else kinds)
        text = field.get("description") or one.get("description", "")
        if "const" in one or "enum" in one:
            values = ", ".join(f"`{value}`" for value in one.get("enum", [one.get("const")]))
            text += f" {'One of' if 'enum' in one else 'Always'} {values}."
        if not text:
            continue  # OpenAI's or Anthropic's own
        rows.append([f"`{name}`", kind + ("" if name in required else ", optional"), text])
    return make_table(["field", "type", "meaning"], rows) if rows else ""


# Requests that are translated


def translated_fields() -> str:
    """What becomes of each field of a request that is translated."""
    from mild_gateway.experts.translation.fields import FIELDS

    whose = {"/messages": " to an OpenAI expert", "/responses": ""}
    rows = [
        [
            f"`/v1{path}`{whose.get(path, ' to an Anthropic expert')}",
            *(", ".join(f"`{name}`" for name in names) for names in groups.values()),
        ]
        for path, groups in FIELDS.items()
    ]
    return make_table(["request", *next(iter(FIELDS.values()))], rows)


# Errors


def library_errors() -> str:
    """Codes of the errors that Python raises and the command line prints."""
    from mild import errors

    classes = {
        kind.code: kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.MildError)
    }
    rows = []
    for code, (cause, remedy) in errors.CODES.items():
        kind = classes.get(code)
        rows.append([f"`{code}`", f"`{kind.__name__}`" if kind else "", cause, remedy])
    return make_table(["code", "class", "cause", "remedy"], rows)


def gateway_errors() -> str:
    """Codes with which the gateway refuses a request."""
    from mild_gateway.error_codes import ERROR_CODES

    rows = [[one.status, f"`{one.code}`", one.cause, one.remedy] for one in ERROR_CODES]
    return make_table(["status", "code", "cause", "remedy"], rows)


# The command line


def commands(distribution: str = LIBRARY) -> dict[str, Any]:
    """The commands of a distribution by their full names, such as ``mild ledger show``."""
    import click
    import typer.main

    from mild.cli.app import build_app

    homes = command_homes()
    by_full_name = {}
    root = typer.main.get_command(build_app())
    context = click.Context(root)
    for name in root.list_commands(context):
        if homes.get(name, LIBRARY) != distribution:
            continue
        command = root.get_command(context, name)
        for inner_name, inner in getattr(command, "commands", {"": command}).items():
            by_full_name[f"mild {name} {inner_name}".strip()] = inner
    return by_full_name


def command_homes() -> dict[str, str]:
    """The distribution of each command, or group of commands, that an entry point adds to ``mild``."""
    homes = {}
    for entry in entry_points(group="mild.commands"):
        if entry.dist is not None:
            homes[entry.name] = entry.dist.name
    return homes


@dataclasses.dataclass(frozen=True)
class CommandHelp:
    """What ``--help`` says of a command, taken apart."""

    usage: str
    text: str
    example: str
    options: dict[str, list[tuple[str, str]]]


def command_help(name: str, command: Any) -> CommandHelp:
    """The help of one command; options by their heading."""
    import click

    context = click.Context(command, info_name=name)
    if hasattr(command, "describe_options"):
        command.describe_options()
    text, _, example = inspect.cleandoc(command.help or "").partition("Example:\n")
    # Lines behind a \b keep their breaks.
    paragraphs = [
        part if part.startswith("\b") else " ".join(part.split()) for part in text.split("\n\n")
    ]
    options: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        is_argument = parameter.param_type_name == "argument"
        title = "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None)
        if record is not None and parameter.name != "help":
            options.setdefault(title or "Options", []).append(record)
    usage = command.get_usage(context).removeprefix("Usage: ")
    kept = [part.strip() for part in paragraphs if part.strip() not in ("", "\b")]
    shown = {title: records for title, records in options.items() if records}
    return CommandHelp(usage, "\n\n".join(kept), inspect.cleandoc(example), shown)


def command_line(distribution: str = LIBRARY) -> str:
    """The commands of a distribution; options that several of them share are at the end."""
    pages = {name: command_help(name, one) for name, one in commands(distribution).items()}
    count: dict[str, int] = {}
    for page in pages.values():
        for title, records in page.options.items():
            count[_options(title, records)] = count.get(_options(title, records), 0) + 1
    parts, shared = [], {}
    for name, page in pages.items():
        parts += [f"## {name}", escaped(page.text.replace("\b\n", ""))]
        parts.append(f"```console\n{page.usage}\n```")
        if page.example:
            parts.append(f"Example:\n\n```console\n{page.example}\n```")
        links = []
        for title, records in page.options.items():
            table = _options(title, records)
            if count[table] > 2 and title not in ("Arguments", "Options"):
                shared[title] = table
                links.append(f"[{title}](#{_anchor(title)})")
            else:
                parts.append(table)
        if links:
            parts.append(f"Further options: {', '.join(links)}.")
    for title, table in shared.items():
        parts += [f"## {title} {{#{_anchor(title)}}}", table]
    return "\n\n".join(parts)


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _options(title: str, records: Sequence[tuple[str, str]]) -> str:
    rows = []
    for name, text in records:
        text, _, facts = text.partition("  [")
        said = [one.strip() for one in facts.removesuffix("]").split(";") if one.strip()]
        known = [_fact(one) for one in said]
        rows.append([f"`{name}`", escaped(" ".join([text, *known]))])
    return make_table([title.lower(), "meaning"], rows)


# A command with its option, or an option.
CODE = re.compile(
    r"(?<![\w-])(mild (?:fit|tune|evaluate|compare|report|predict|explain|demo|route|"
    r"collect|serve|check|replay|learn|versions|"
    r"(?:keys|ledger|feedback|data)(?: [a-z]+)?)"
    r"(?: --[a-z-]+)?|--[a-z][a-z-]*)(?![\w-])"
)


def _fact(text: str) -> str:
    """What click says of an option, such as ``default: 5`` or ``0<=x<=9``, as a sentence."""
    ranges = (
        (r"(\S+)<=x<=(\S+)", r"From \1 to \2"), (r"x>=(\S+)", r"At least \1"), (r"x<=(\S+)", r"At most \1")
    )  # fmt: skip
    for pattern, words in ranges:
        text = re.sub(pattern, words, text)
    return f"{text[0].upper()}{text[1:]}."


def escaped(text: str) -> str:
    """Plain text as Markdown: options and commands as code, nothing read as markup outside backticks.

    >>> escaped("--out, cost__<expert> and `a_*`")
    '`--out`, cost\\\\_\\\\_&lt;expert> and `a_*`'
    """
    parts = text.split("`")
    for k in range(0, len(parts), 2):
        plain = re.sub(r"([*_])", r"\\\1", parts[k].replace("<", "&lt;"))
        parts[k] = CODE.sub(r"`\1`", plain)
    return "`".join(parts)


# Python

GROUPS = {
    "Tables": ("read_outcomes", "Outcomes"),
    "Tuning": ("tune", "tuning.TuneResult", "fit"),
    "Evaluation": ("evaluate", "compare"),
    "The router": ("Router", "save", "load"),
    "Estimators": (
        "RouterCV", "LinearRouter", "RidgeRouter", "KNNRouter", "PricedRouter", "BlendRouter",
        "CascadeRouter", "NeuralRouter", "ConstantRouter",
    ),
    "A classifier that asks experts": ("deferral.DeferralClassifier",),
    "Losses and decisions": (
        "core.cost_matrix", "core.costs_from_correctness", "core.rewards",
        "core.reward_distribution", "core.cheapest", "core.expert_mass", "core.theory_margins",
        "core.uniform_margins", "core.ratio_grid", "core.paper_grid", "core.Surrogate",
        "core.mild_loss", "core.tdef_loss", "core.cross_entropy_loss", "core.ldam_loss",
        "core.logit_adjusted_loss", "core.class_dependent_temperature_loss",
        "core.cost_sensitive_loss", "core.rho_margin_loss", "core.log_sum_loss",
        "core.stationary_distribution", "core.decide",
    ),
}  # fmt: skip
MODULES = {
    "mild.nn": "The losses and decisions for torch.",
    "mild.nn.defer": "The losses of learning to defer in one stage, for torch.",
    "mild.metrics": "Figures of choices: losses, shares, recall, curves and intervals.",
    "mild.evaluation": "What another router would have cost, from a log with probabilities.",
    "mild.features": "Text to vectors, as scikit-learn transformers.",
    "mild.data": "Reading, writing and splitting tables.",
}
GATEWAY_GROUPS = {
    "Collecting outcomes": ("collect_outcomes",),
    "Learning from traffic": ("replay", "learn", "import_feedback"),
    "Inside LiteLLM": ("litellm_plugin.MildPlugin",),
}


def python_names() -> str:
    """Directives of mkdocstrings for every public name of mild, by subject."""
    parts = [_subjects("mild", GROUPS)]
    for module, text in MODULES.items():
        parts += [f"## {module}", text]
        parts += [_directive(f"{module}.{name}") for name in shown_names(module)]
    return "\n\n".join(parts)


def gateway_names() -> str:
    """The same for mild_gateway."""
    return _subjects("mild_gateway", GATEWAY_GROUPS)


def shown_names(module: str) -> list[str]:
    """Public names of a module without its constants."""
    names = importlib.import_module(module).__all__
    return [name for name in names if not name.isupper()]


def _subjects(package: str, groups: Mapping[str, Sequence[str]]) -> str:
    parts = []
    for title, names in groups.items():
        parts.append(f"## {title}")
        parts += [_directive(f"{package}.{name}") for name in names]
    return "\n\n".join(parts)


def _directive(name: str) -> str:
    return f"::: {name}\n    options: {{heading_level: 3, inherited_members: false}}"


PARTS: dict[str, Callable[[], str]] = {
    "python": python_names,
    "gateway_python": gateway_names,
    "commands": command_line,
    "gateway_commands": lambda: command_line(GATEWAY),
    "library_errors": library_errors,
    "gateway_errors": gateway_errors,
    "settings": gateway_settings,
    "prompts": prompt_settings,
    "metrics": metrics,
    "ledger": ledger,
    "fields": translated_fields,
    "paths": http_paths,
}
