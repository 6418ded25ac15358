"""Messages to a prompt, by the template that a model was published with."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import UsageError

TEMPLATE = "chat_template.jinja"
SETTINGS = "tokenizer_config.json"
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
"""Tokens that templates name."""
FIX = "give messages as OpenAI's API has them: [{'role': 'user', 'content': '...'}]"


class Chat:
    """A Jinja template in a sandbox, as Hugging Face's tokenizers have it. Raises `UsageError` for what is none."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            fix = "pip install 'tilewright[serve]', or keep the template elsewhere than beside tokenizer.json"
            raise UsageError("a template of chats needs a package that is not installed: jinja2", fix=fix) from error
        made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        made.globals |= {"raise_exception": _refuse, "strftime_now": datetime.datetime.now().strftime}
        self._errors = TemplateError
        self._tokens = dict(tokens)
        try:
            self._template = made.from_string(source)
        except TemplateError as error:
            raise UsageError(f"the template of chats is none: {error}", fix="give the one of the model") from None

    @classmethod
    def beside(cls, tokenizer: Path) -> Chat | None:
        """The template in the folder of a `tokenizer.json`; None where there is none."""
        file, settings = tokenizer.with_name(TEMPLATE), tokenizer.with_name(SETTINGS)
        try:
            said = json.loads(settings.read_text()) if settings.exists() else {}
            source = file.read_text() if file.exists() else said.get("chat_template")
        except (OSError, ValueError) as error:
            raise UsageError(f"{settings} cannot be read: {error}", fix="give the one of the model") from None
        if not isinstance(source, str):
            return None
        named = {name: said[name] for name in SPECIAL if said.get(name)}
        return cls(source, {name: one["content"] if isinstance(one, dict) else one for name, one in named.items()})

    def prompt(self, messages: Any) -> str:
        """The text that the answer to these messages follows. Raises `UsageError`."""
        if not isinstance(messages, list) or not messages:
            raise UsageError("there are no messages", fix=FIX)
        told = [_message(one, at) for at, one in enumerate(messages)]
        try:
            return self._template.render(messages=told, add_generation_prompt=True, **self._tokens)
        except (self._errors, TypeError, ValueError) as error:
            raise UsageError(f"the template of chats refuses these messages: {error}", fix=FIX) from None


def _message(given: Any, at: int) -> dict[str, str]:
    """A message whose content is one text; parts that are texts are joined."""
    content = given.get("content") if isinstance(given, dict) else None
    if isinstance(content, list) and all(isinstance(one, dict) and one.get("type") == "text" for one in content):
        content = "".join(str(one.get("text", "")) for one in content)
    if not isinstance(content, str) or not isinstance(given.get("role"), str):
        raise UsageError(f"message {at} has no role, or its content is no text", fix=FIX)
    return {"role": given["role"], "content": content}


def _refuse(reason: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(reason)
