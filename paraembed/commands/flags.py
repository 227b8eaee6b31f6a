"""Map the nested settings of a job to one flat command line, with its flags in groups.

tyro groups flags by nested dataclasses. The settings of a job are nested by their use (recipe, workers, limits), so the
command line is parsed into a class that has one nested dataclass for each group, and the settings are built from its
values.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, make_dataclass
from functools import cache, reduce
from pathlib import Path
from textwrap import dedent
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro

from paraembed.aliases import ON_DISK
from paraembed.commands import JOBS
from paraembed.console import write_stream

Flags = TypeVar("Flags")
Groups = Mapping[str, str]
"""Title of a group of flags → names of its fields, separated by spaces. Fields without a group come first."""

NO_GROUPS: Groups = {}


_UNTRACKED = {"Search", "Status", "Verify", "Load", "Log", "Fetch", "Completion", "Sample"}


@dataclass(frozen=True)
class CommonFlags:
    """Flags of every job, besides its own; see ``with_common``."""

    quiet: bool = False
    """Print only results, warnings and errors."""
    json: bool = False
    """Print a last line to stdout, a JSON object: job, status, written (paths), counts or error, estimate of --dry-run,
    and seconds.
    """


@dataclass(frozen=True)
class TrackedFlags(CommonFlags):
    """Flags of every job that opens an MLflow run."""

    experiment: str | None = None
    """MLflow experiment; default: $MLFLOW_EXPERIMENT_NAME, or paraembed."""
    run_name: str | None = None
    """Name of the MLflow run; default: the job and the name of its output."""
    tag: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME=VALUE ...]")] = ()
    """Tags of the MLflow run."""

    def __post_init__(self) -> None:
        """Raise ValueError if a tag has no name or no value."""
        for tag in self.tag:
            if not all(tag.partition("=")):
                raise ValueError(f"`tag` is {tag!r}; give NAME=VALUE, such as team=search")


COMMON = {"every job": " ".join(own.name for own in fields(TrackedFlags))}
"""Group of the flags of ``TrackedFlags``."""


def with_common(flags: type[Flags], default: Flags | None = None) -> tuple[type, Any]:
    """Return a dataclass with the flags of a job in the field ``own`` and those of every job in ``common``, and its
    default.
    """
    common = CommonFlags if flags.__name__ in _UNTRACKED else TrackedFlags
    kinds: list[Any] = [
        (name, Annotated[kind, tyro.conf.arg(name="")]) for name, kind in (("own", flags), ("common", common))
    ]
    line = make_dataclass(flags.__name__, kinds, namespace={"__doc__": inspect.getdoc(flags)})
    return line, line(_defaults(flags) if default is None else default, common())


_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
_METAVARS_OF = {"keep": "[COLUMN ...]", "text": "TEMPLATE"}  # by field, of settings in the core, which has no tyro


def parse_flags(flags: type[Flags], arguments: Sequence[str], groups: Groups, default: Flags | None = None) -> Flags:
    """Parse a command line into settings; ``--help`` and unknown flags end the process, as usual with tyro.

    The docstring of ``flags`` is the description of the job. ``default`` has values for flags that are left out, with
    ``tyro.MISSING`` for required ones. Raise ValueError if the dataclass or a nested one rejects a value.
    """
    default = _defaults(flags) if default is None else default
    titles = {name: title for title, names in groups.items() for name in names.split()}
    parts: dict[str, list[Any]] = {title: [] for title in groups}
    first: list[Any] = []
    names = flag_names(flags)
    for path, name, hint, text in _leaves(flags):  # type: ignore[arg-type]  # a class is hashable
        value = reduce(getattr, path.split("__"), default)
        annotation = _annotation(name, hint, value, as_started(_spelled(text, names)))
        own = (path, annotation) if value is tyro.MISSING else (path, annotation, field(default=value))
        parts.get(titles.get(name, ""), first).append(own)
    kinds = [(title, make_dataclass("Group", content, kw_only=True)) for title, content in parts.items() if content]
    for number, (title, kind) in enumerate(kinds):
        first.append((f"group__{number}", Annotated[kind, tyro.conf.arg(name=title, help="")]))
    line = make_dataclass(flags.__name__, first, kw_only=True)
    style = (tyro.conf.FlagCreatePairsOff, tyro.conf.AvoidSubcommands)
    description = as_started(" ".join((inspect.getdoc(flags) or "").split()))
    try:
        parsed = dict(vars(tyro.cli(line, args=arguments, description=description, config=style)))
    except BrokenPipeError:  # of --help, in a pipe such as ``| head``
        write_stream(sys.stdout, "")
        sys.exit()
    for number in range(len(kinds)):
        parsed |= vars(parsed.pop(f"group__{number}"))
    return _settings(flags, parsed)


def _defaults(flags: type[Flags]) -> Flags:
    own_fields = fields(flags)  # type: ignore[arg-type]
    required = [own.name for own in own_fields if own.default is own.default_factory is MISSING]
    return flags(**dict.fromkeys(required, tyro.MISSING))


def typed_flags(flags: type[Flags], default: Flags | None = None) -> dict[str, tuple[str, ...]]:
    """Return the flags as a command line spells them, with ``--no-`` for a flag that is on by default, and the values
    that each is limited to; those of positional arguments have the flag "".
    """
    default = _defaults(flags) if default is None else default
    typed: dict[str, tuple[str, ...]] = {"": ()}
    for path, name, hint, _ in _leaves(flags):  # type: ignore[arg-type]  # a class is hashable
        is_on = reduce(getattr, path.split("__"), default) is True
        flag = flag_of(f"no-{_name(hint, name)}" if is_on else _name(hint, name))
        typed["" if tyro.conf.Positional in _settings_of(hint) else flag] = _choices(hint)
    return typed


def _choices(hint: Any) -> tuple[str, ...]:
    """Return the values that a type allows, if it is a choice, an optional one, or several of them."""
    kind = _kind(hint)
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    return tuple(value for inner in get_args(kind) for value in _choices(inner))


def current_flags(arguments: Iterable[str], flags: type) -> list[str]:
    """Return a job's command line with the current names of flags, such as ``--tokenizer`` for ``--tokeniser``; a flag
    that the job has is not an earlier name of another one.
    """
    earlier = {flag_of(old): flag_of(new) for new, old in ON_DISK.items()} | {"--every": "--eval-every"}
    earlier |= {own: own for own in flag_names(flags).values()}
    current = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        current.append(earlier.get(flag.replace("_", "-"), flag) + equals + value)
    return current


def flag_of(name: str) -> str:
    """Return the flag of a name: ``--part-rows`` of ``part_rows``."""
    return f"--{name.replace('_', '-')}"


def names_in(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values of a flag that takes several, separated by blanks or commas."""
    return tuple(name for value in values for name in value.split(",") if name)


def flag_names(flags: type) -> dict[str, str]:
    """Return field → flag for all settings of a job, such as ``{"part_rows": "--part-rows"}``."""
    return {name: flag_of(_name(hint, name)) for _, name, hint, _ in _leaves(flags)}


def as_flags(text: str, flags: type) -> str:
    """Spell the parameters in a text of the core, which are in backquotes, as flags: `part_rows` as --part-rows, and
    `keep` of jobs/embed.py as --keep of jobs/embed.py.
    """
    return _spelled(text, flag_names(flags))


def as_started(text: str) -> str:
    """Spell the jobs in a text as the user starts them: ``python jobs/embed.py`` is in a checkout, and ``paraembed
    embed`` in an installation, which has no folder of jobs.
    """
    if not sys.argv[0].startswith("paraembed "):
        return text
    return re.sub(rf"(?<![\w./-])(?:python )?(?:jobs/)?({'|'.join(JOBS)})\.py\b", r"paraembed \1", text)


def _spelled(text: str, names: Mapping[str, str]) -> str:
    text = re.sub(r"`(\w+)`( of jobs/\w+\.py)", lambda match: f"{flag_of(match[1])}{match[2]}", text)
    return re.sub(r"`(\w+)`", lambda match: names.get(match[1], match[0]), text)


@cache
def _leaves(flags: type) -> list[tuple[str, str, Any, str]]:
    """Return path (such as ``settings__batch_size``), name, type and description of all settings of a job."""
    hints, texts = get_type_hints(flags, include_extras=True), _descriptions(flags)
    leaves = []
    for name in (own.name for own in fields(flags) if own.init):
        if not _name(hints[name], name):
            leaves += [(f"{name}__{path}", *leaf) for path, *leaf in _leaves(_kind(hints[name]))]
        else:
            leaves.append((name, name, hints[name], texts.get(name, "")))
    return leaves


def _annotation(name: str, hint: Any, default: Any, text: str) -> Any:
    """Return a type for tyro: without a prefix, with description, placeholder and default in readable form."""
    has_own = any(getattr(setting, "metavar", None) for setting in _settings_of(hint))
    placeholder = None if has_own else _METAVARS_OF.get(name) or _metavar(hint)
    help_text = None if is_dataclass(default) else text  # each option of an encoder has its own
    note, flag = _default_note(default, help_text or ""), _name(hint, name)
    options = tyro.conf.arg(name=flag, prefix_name=False, help=help_text, metavar=placeholder, help_behavior_hint=note)
    return Annotated[hint, options]


def _settings(flags: type[Flags], values: Mapping[str, Any], prefix: str = "") -> Flags:
    hints = get_type_hints(flags, include_extras=True)
    arguments = {}
    for name in (own.name for own in fields(flags) if own.init):  # type: ignore[arg-type]
        path, hint = f"{prefix}{name}", hints[name]
        arguments[name] = values[path] if _name(hint, name) else _settings(_kind(hint), values, f"{path}__")
    return flags(**arguments)


def _settings_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _kind(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _name(hint: Any, field_name: str) -> str:
    """Return the name of a flag, as tyro's settings give it or that of the field; empty for nested settings."""
    names = (getattr(setting, "name", None) for setting in _settings_of(hint))
    return next((name for name in names if name is not None), field_name)


def _metavar(hint: Any) -> str | None:
    """Return the placeholder of a value, such as TEXT for tyro's STR; None: use tyro's."""
    kind = _kind(hint)
    if kind == int | str:
        return "N|MIN:MAX"
    if kind is str:
        return _METAVARS[str]
    members = [member for member in get_args(kind) if member is not NoneType]
    if get_origin(kind) is tuple and members[1:] == [...] and members[0] in _METAVARS:
        return f"[{_METAVARS[members[0]]} ...]"
    if len(members) != 1 or NoneType not in get_args(kind):
        return None
    choices = get_args(members[0])
    return "{" + ",".join(map(str, choices)) + "}" if choices else _METAVARS.get(members[0])


def _default_note(default: Any, text: str) -> str | None:
    """Return the note on a default that is empty or true; None: tyro prints the value."""
    if isinstance(default, bool):
        return "(on by default)" if default else ""
    if default is None or default == ():
        return "" if "default:" in text else "(optional)" if "None:" not in text else None
    return None


def _descriptions(flags: type) -> dict[str, str]:
    """Return field → string literal after the field, for a dataclass and its base classes."""
    texts: dict[str, str] = {}
    for kind in reversed(flags.__mro__[:-1]):
        try:
            source = inspect.getsource(kind)
        except OSError:  # defined on a command line or in a prompt: its flags have no descriptions
            continue
        body = ast.parse(dedent(source)).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(after, ast.Expr):
                assert isinstance(statement.target, ast.Name)
                texts[statement.target.id] = inspect.cleandoc(ast.literal_eval(after.value)).replace("\n", " ")
    return texts
