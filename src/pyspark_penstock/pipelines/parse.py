"""A pipeline's file, in YAML or in Python, to what it means. No Spark: what only Spark can tell, `check` finds out."""

from __future__ import annotations

import inspect
import posixpath
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark_penstock.pipelines.fields import Fields
from pyspark_penstock.pipelines.model import (
    ACTIONS,
    AVAILABLE_NOW,
    BAD,
    OUTPUT_MODES,
    PAYLOADS,
    SINK_KINDS,
    Expectation,
    Payload,
    PipelineError,
    PipelineSpec,
    Sink,
    SinkKind,
    Source,
    Transform,
    Watermark,
)

NAME_CHARACTERS_MAX = 100
RESTARTS_MAX = 5
_ADDRESS = re.compile(r"[A-Za-z][\w+.-]*:/")


def read_file(path: Path) -> PipelineSpec:
    """PipelineError names the place of the first mistake."""
    if not path.exists():
        raise PipelineError(f"{path}: there is no such file (penstock pipeline init {path} writes one to begin with)")
    if path.suffix == ".py":
        return _read_python(path)
    if path.suffix in (".yaml", ".yml"):
        return read_content(_load_yaml(path), path)
    raise PipelineError(f"{path}: a pipeline's file ends in .yaml, .yml or .py")


def _load_yaml(path: Path) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ValueError, AttributeError) as error:  # a day that no month has, a number of thousands of digits
                reason = f"no value can be made of what is there: {error}"
                raise yaml.constructor.ConstructorError(problem=reason, problem_mark=node.start_mark) from None

    try:
        text = path.read_text(encoding="utf-8")
        _refuse_twins(yaml.compose(text, Loader), path)
        return Loader(text).get_single_data()
    except RecursionError:
        raise PipelineError(f"{path}: no YAML: too deep") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise PipelineError(f"{path}{where}: no YAML: {problem}") from None
    except UnicodeDecodeError:
        raise PipelineError(f"{path}: is not text in UTF-8") from None


def _refuse_twins(root: Any, path: Path) -> None:
    """Of two equal keys YAML would take the second and say nothing of the first."""
    import yaml

    left, seen = [root], set()
    while left:
        node = left.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += node.value
            continue
        names = set()
        for key, value in node.value:
            left.append(value)
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in names:
                raise PipelineError(f"{path}, line {key.start_mark.line + 1}: {key.value} is there twice")
            names.add(key.value)


def _read_python(path: Path) -> PipelineSpec:
    from pyspark_penstock.pipelines.builder import Pipeline

    found = list({id(value): value for value in run_python(path).values() if isinstance(value, Pipeline)}.values())
    if len(found) != 1:
        raise PipelineError(f"{path}: makes {len(found)} pipelines at its top level; it must make one Pipeline(…)")
    return read_content(found[0].content, path)


def run_python(path: Path) -> dict[str, Any]:
    """The names a Python file makes. It is no module: what Spark sends to workers travels by value."""
    namespace: dict[str, Any] = {"__name__": "penstock_pipeline", "__file__": str(path)}
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), namespace)
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}") from None
    except PipelineError:
        raise
    except (Exception, SystemExit) as error:  # it must not end a command either, which would then have gone well
        line = _line_in(error, path)
        raise PipelineError(f"{path}{line}: {type(error).__name__}: {error}") from error
    return namespace


def _line_in(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return "" if error.lineno is None else f", line {error.lineno}"
    numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f", line {numbers[-1]}" if numbers else ""


def read_content(content: Any, path: Path) -> PipelineSpec:
    """`path` gives the default name, and what relative paths are relative to."""
    fields = Fields(content, str(path))
    folder = path.resolve().parent
    name = fields.text("name", path.stem)
    _check_name(name, f"{path}: the pipeline's name")
    servers = fields.text("servers", "")
    storage = folder / fields.text("storage", f"{path.stem}.storage")
    sources: list[Source] = []
    sinks: list[Sink] = []
    for one, inner in fields.children("sources"):
        source, letters = _source(one, inner, servers, folder)
        sources.append(source)
        sinks += letters
    transforms = [_transform(one, inner, folder) for one, inner in fields.children("transforms")]
    sinks += [_sink(one, inner, servers, folder) for one, inner in fields.children("sinks")]
    spec = PipelineSpec(
        name=name,
        storage=storage,
        checkpoints=_place(fields.text("checkpoints", str(storage / "checkpoints")), folder),
        trigger=fields.text("trigger", AVAILABLE_NOW),
        restarts_max=fields.integer("restarts", RESTARTS_MAX),
        settings=fields.options("spark"),
        sources=tuple(sources),
        transforms=tuple(transforms),
        sinks=tuple(sinks),
    )
    fields.end()
    _check_names(spec, path)
    return spec


def _check_name(name: str, what: str) -> None:
    if not name.replace("_", "a").replace("-", "a").isalnum() or len(name) > NAME_CHARACTERS_MAX:
        raise PipelineError(f"{what} {name!r} must be made of letters, digits, _ and -, {NAME_CHARACTERS_MAX} at most")


def _check_names(spec: PipelineSpec, path: Path) -> None:
    if not spec.sources:
        raise PipelineError(f"{path}: there are no sources")
    if not spec.sinks:
        raise PipelineError(f"{path}: there are no sinks")
    views: set[str] = set()
    lower: set[str] = set()
    """SQL takes no notice of case: the second of two such views would take the place of the first."""
    made: list[Source | Transform] = [*spec.sources, *spec.transforms]
    for one in made:
        if not one.name.isidentifier():
            raise PipelineError(f"{path}: {one.name!r} is no name for a view in SQL: letters, digits and _")
        if one.name.lower() in lower:
            raise PipelineError(f"{path}: two views are called {one.name}")
        unknown = [name for name in one.inputs if name not in views] if isinstance(one, Transform) else []
        if unknown:
            raise PipelineError(f"transforms, {one.name}: there is no view {unknown[0]} above it")
        views.add(one.name)
        lower.add(one.name.lower())
        if isinstance(one, Source) and one.payload.format != "raw":
            if (one.name + BAD).lower() in lower:
                raise PipelineError(f"{path}: two views are called {one.name + BAD}: {one.name} brings one of its own")
            views.add(one.name + BAD)
            lower.add((one.name + BAD).lower())
    flows: set[str] = set()
    tables: dict[str, str] = {}
    for sink in spec.sinks:
        _check_name(sink.name, "a sink's name")
        if sink.name in flows:
            raise PipelineError(f"{path}: two sinks are called {sink.name}")
        if sink.view not in views:
            raise PipelineError(f"sinks, {sink.name}: there is no view {sink.view} (there are {', '.join(views)})")
        flows.add(sink.name)
        table = posixpath.normpath(sink.target)
        if sink.kind == "parquet" and tables.setdefault(table, sink.name) != sink.name:
            raise PipelineError(
                f"sinks, {sink.name}: {tables[table]} writes to {sink.target} too, and Spark takes one flow's batches for the other's"
            )


# ---- sources


def _source(name: str, fields: Fields, servers: str, folder: Path) -> tuple[Source, list[Sink]]:
    given = [kind for kind in ("topic", "pattern", "files") if fields.has(kind)]
    if len(given) != 1:
        raise PipelineError(f"{fields.place}: one of topic, pattern and files says what is read")
    watermark, expectations = _watermark(fields), _expectations(fields)
    options = fields.options("options")
    letters: list[Sink] = []
    if given == ["files"]:
        files = fields.text("files")
        source = Source(
            name=name,
            format=fields.text("format", "parquet"),
            options={**options, "path": _place(files, folder)},
            is_stream=fields.boolean("stream", False),
            schema=fields.text("schema", ""),
            watermark=watermark,
            expectations=expectations,
        )
    else:
        payload = _payload(fields, folder)
        source = Source(
            name=name,
            format="penstock",
            options={**_topic_options(fields, given[0], servers), **options},
            is_stream=fields.boolean("stream", True),
            payload=payload,
            watermark=watermark,
            expectations=expectations,
        )
        if fields.has("dead_letters"):
            if payload.format == "raw":
                raise PipelineError(f"{fields.place}: dead_letters are for records that are decoded: set payload")
            place = f"{fields.place}, dead_letters"
            inner = {**Fields(fields.raw("dead_letters"), place).items(), "from": name + BAD}
            letters.append(_sink(name + BAD, Fields(inner, place), servers, folder))
    fields.end()
    return source, letters


def _topic_options(fields: Fields, kind: str, servers: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": _servers(fields, servers),
        "subscribePattern" if kind == "pattern" else "subscribe": fields.text(kind),
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }


def _servers(fields: Fields, servers: str) -> str:
    found = fields.text("servers", servers)
    if not found:
        raise PipelineError(f"{fields.place}: servers is missing: set it here, or for all at the top")
    return found


def _payload(fields: Fields, folder: Path) -> Payload:
    schema = fields.text("schema", "")
    kind = fields.text("payload", "json" if schema else "raw", choices=PAYLOADS)
    registry, subject, message = (fields.text(name, "") for name in ("registry", "subject", "message"))
    if kind == "raw" and (schema or registry):
        raise PipelineError(f"{fields.place}: schema and registry are for payloads that are decoded")
    if kind == "json" and (not schema or registry):
        raise PipelineError(f"{fields.place}: JSON needs a schema like 'id STRING, amount DOUBLE', and no registry")
    if kind in ("avro", "protobuf"):
        if not schema and not registry:
            raise PipelineError(f"{fields.place}: {kind} needs schema, a file, or registry, or both")
        schema = str(folder / schema) if schema else ""
        registry = _place(registry, folder) if registry else ""
    return Payload(format=kind, schema=schema, registry=registry, subject=subject, message=message)


def _place(text: str, folder: Path) -> str:
    """A path relative to the file; an address with a scheme as it is."""
    return text if _ADDRESS.match(text) else str(folder / text)


def _watermark(fields: Fields) -> Watermark | None:
    if fields.raw("watermark") is None:
        return None
    inner = Fields(fields.raw("watermark"), f"{fields.place}, watermark")
    found = Watermark(column=inner.text("column"), delay=inner.text("delay"))
    inner.end()
    return found


def _expectations(fields: Fields) -> tuple[Expectation, ...]:
    found = []
    for name, condition in Fields(fields.raw("expect") or {}, f"{fields.place}, expect").items().items():
        if isinstance(condition, str):
            condition = {"that": condition}
        inner = Fields(condition, f"{fields.place}, expect, {name}")
        action = inner.text("else", "warn", choices=ACTIONS)
        found.append(Expectation(name=name, condition=inner.text("that"), action=action))  # type: ignore[arg-type]
        inner.end()
    return tuple(found)


# ---- transforms and sinks


def _transform(name: str, fields: Fields, folder: Path) -> Transform:
    given = [kind for kind in ("sql", "python") if fields.has(kind)]
    if len(given) != 1:
        raise PipelineError(f"{fields.place}: one of sql and python says what is done")
    function: Callable[..., Any] | None = None
    sql = ""
    if given == ["sql"]:
        sql = fields.text("sql")
    elif callable(fields.raw("python")):
        function = fields.raw("python")
    else:
        function = _function(fields.text("python"), fields.place, folder)
    found = Transform(
        name=name,
        sql=sql,
        function=function,
        inputs=() if function is None else _parameters(function, fields.place),
        watermark=_watermark(fields),
        expectations=_expectations(fields),
    )
    fields.end()
    return found


def _parameters(function: Callable[..., Any], place: str) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except ValueError:  # some that are not written in Python
        raise PipelineError(f"{place}: {function!r} does not say what its parameters are called") from None


def _function(text: str, place: str, folder: Path) -> Callable[..., Any]:
    file, separator, name = text.rpartition(":")
    if not separator:
        raise PipelineError(f"{place}: python is {text!r}; it must be like transforms.py:function")
    function: Callable[..., Any] | None = run_python(folder / file).get(name)
    if not callable(function):
        raise PipelineError(f"{place}: {file} has no function {name}")
    return function


def _sink(name: str, fields: Fields, servers: str, folder: Path) -> Sink:
    given = [kind for kind in SINK_KINDS if fields.has(kind)]
    if len(given) != 1:
        raise PipelineError(f"{fields.place}: one of {', '.join(SINK_KINDS)} says where to write")
    kind: SinkKind = given[0]
    target, key, options = "", "", fields.options("options")
    if kind == "console":
        fields.boolean("console", True)
    elif kind == "topic":
        target = fields.text("topic")
        key = fields.text("key", "")
        delivery = fields.text("delivery", "exactly_once", choices=("exactly_once", "at_least_once"))
        options = {
            "kafka.bootstrap.servers": _servers(fields, servers),
            "topic": target,
            "delivery": delivery,
            **options,
        }
    else:
        target = fields.text(kind) if kind == "iceberg" else _place(fields.text(kind), folder)
    found = Sink(
        name=name,
        view=fields.text("from"),
        kind=kind,
        target=target,
        options=options,
        output_mode=fields.text("mode", "append", choices=OUTPUT_MODES[kind]),
        key=key,
        partition_by=fields.texts("partition_by") if kind in ("parquet", "delta", "iceberg") else (),
    )
    fields.end()
    return found
