"""Map the nested settings of a job to one flat command line, with its flags in groups.

tyro groups flags by nested dataclasses. The settings of a job are nested by their use (recipe, workers, limits), so the
command line is parsed into a class that has one nested dataclass for each group, and the settings are built from its
values.
"""

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from textwrap import dedent
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import tyro

Flags = TypeVar("Flags")
Groups = Mapping[str, str]
"""Title of a group of flags → names of its fields, separated by spaces. Fields without a group come first."""

NO_GROUPS: Groups = {}

_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class _Flag:
    """A field of the settings that is one flag, or has several flags (the options of an encoder).

    Attributes:
        path: names of the enclosing fields and of the field, joined by ``__``.
        hint: its type, with tyro's settings.
        default: its default, or ``MISSING``.
        text: its description.
    """

    path: str
    hint: Any
    default: Any
    text: str

    @property
    def name(self) -> str:
        """Name of the field."""
        return self.path.rpartition("__")[2]

    def annotation(self) -> Any:
        """Return the type for tyro: without a prefix, with description, placeholder and default in readable form."""
        settings = _settings_of(self.hint)
        name = next((setting.name for setting in settings if getattr(setting, "name", None)), self.name)
        placeholder = None if any(getattr(setting, "metavar", None) for setting in settings) else _metavar(self.hint)
        text = None if is_dataclass(self.default) else self.text
        note = _default_note(self.default, text or "")
        options = tyro.conf.arg(name=name, prefix_name=False, help=text, metavar=placeholder, help_behavior_hint=note)
        return Annotated[self.hint, options]

    def field(self) -> "tuple[str, Any] | tuple[str, Any, Any]":
        """Return the field for ``make_dataclass``."""
        if self.default is MISSING:
            return self.path, self.annotation()
        return self.path, self.annotation(), field(default=self.default)


def parse_flags(flags: type[Flags], arguments: Sequence[str], groups: Groups, default: Flags | None = None) -> Flags:
    """Parse a command line into settings; ``--help`` and unknown flags end the process, as usual with tyro.

    Args:
        flags: dataclass of the settings; its docstring is the description of the job.
        arguments: the command line.
        groups: flags that are listed together.
        default: values for flags that are left out, with ``tyro.MISSING`` for required ones.

    Raises:
        ValueError: the dataclass or a nested one rejects a value.
    """
    leaves = _leaves(flags, default)
    titles = {name: title for title, names in groups.items() for name in names.split()}
    parts: dict[str, list[Any]] = {title: [] for title in groups}
    first: list[Any] = []
    for leaf in leaves:
        title = titles.get(leaf.name)
        (first if title is None else parts[title]).append(leaf.field())
    kinds = [(title, make_dataclass("Group", content, kw_only=True)) for title, content in parts.items() if content]
    for number, (title, kind) in enumerate(kinds):
        first.append((f"group__{number}", Annotated[kind, tyro.conf.arg(name=title, help="")]))
    line = make_dataclass(flags.__name__, first, kw_only=True)
    style = (tyro.conf.FlagCreatePairsOff, tyro.conf.AvoidSubcommands)
    description = " ".join((inspect.getdoc(flags) or "").split())
    parsed = dict(vars(tyro.cli(line, args=arguments, description=description, config=style)))
    for number in range(len(kinds)):
        parsed |= vars(parsed.pop(f"group__{number}"))
    return _settings(flags, parsed)


def flag_names(flags: type) -> dict[str, str]:
    """Return field → flag for all settings of a job, such as ``{"part_rows": "--part-rows"}``."""
    names: dict[str, str] = {}
    for name, hint in get_type_hints(flags, include_extras=True).items():
        if _is_nested(hint):
            names |= flag_names(_kind(hint))
        else:
            own = next((setting.name for setting in _settings_of(hint) if getattr(setting, "name", None)), name)
            names[name] = f"--{own.replace('_', '-')}"
    return names


def _leaves(flags: type, default: Any, prefix: str = "") -> list[_Flag]:
    hints, texts = get_type_hints(flags, include_extras=True), _descriptions(flags)
    leaves = []
    for one_field in fields(flags):
        name, hint = one_field.name, hints[one_field.name]
        value = _default(one_field) if default is None else getattr(default, name)
        path = f"{prefix}{name}"
        if _is_nested(hint):
            leaves += _leaves(_kind(hint), None if value is MISSING else value, f"{path}__")
        else:
            leaves.append(_Flag(path, hint, MISSING if value is tyro.MISSING else value, texts.get(name, "")))
    return leaves


def _settings(flags: type[Flags], values: Mapping[str, Any], prefix: str = "") -> Flags:
    hints = get_type_hints(flags, include_extras=True)
    arguments = {}
    for name in (own.name for own in fields(flags)):  # type: ignore[arg-type]
        path, hint = f"{prefix}{name}", hints[name]
        arguments[name] = _settings(_kind(hint), values, f"{path}__") if _is_nested(hint) else values[path]
    return flags(**arguments)


def _default(own: Field[Any]) -> Any:
    return own.default if own.default_factory is MISSING else own.default_factory()


def _settings_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _kind(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _is_nested(hint: Any) -> bool:
    """Return whether a field's flags are those of its dataclass, without a prefix: ``tyro.conf.arg(name="")``."""
    return is_dataclass(_kind(hint)) and any(getattr(setting, "name", None) == "" for setting in _settings_of(hint))


def _metavar(hint: Any) -> str | None:
    """Return the placeholder of an optional value, without tyro's ``{None}|``; None: use tyro's placeholder."""
    if _kind(hint) == int | str:
        return "N|MIN:MAX"
    members = [member for member in get_args(_kind(hint)) if member is not NoneType]
    if len(members) != 1 or NoneType not in get_args(_kind(hint)):
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
