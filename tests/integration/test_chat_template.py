"""The engine's chat templates against jinja2 set up as transformers does it, text for text and id for id."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sdk_tools.engine import Engine, Message
from sdk_tools.errors import SyrinxError

# Shapes that released models' templates have, each written for this test.
TEMPLATES = {
    "chatml with a default system prompt": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are a test.<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "system folded into the first user turn": (
        "{%- if messages[0].role == 'system' -%}\n    {%- set prefix = messages[0].content | trim + '\n\n' -%}\n"
        "    {%- set rest = messages[1:] -%}\n{%- else -%}\n    {%- set prefix = '' -%}\n"
        "    {%- set rest = messages -%}\n{%- endif -%}\n"
        "{%- for m in rest -%}\n  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}\n"
        "    {{ raise_exception('roles must alternate') }}\n  {%- endif -%}\n"
        "  {{ '<start>' ~ m.role ~ '\n' ~ (prefix if loop.first else '') ~ m.content | trim ~ '<end>\n' }}\n"
        "{%- endfor -%}\n{%- if add_generation_prompt -%}{{ '<start>assistant\n' }}{%- endif -%}"
    ),
    "namespace, reversed search and thinking stripped": (
        "{%- set ns = namespace(last=0) %}\n{%- for m in messages[::-1] %}\n"
        "  {%- if m.role == 'user' and ns.last == 0 %}\n"
        "    {%- set ns.last = messages | length - loop.index0 %}\n  {%- endif %}\n"
        "{%- endfor %}\n{%- for m in messages %}\n  {%- set text = m.content %}\n"
        "  {%- if m.role == 'assistant' and '</think>' in text %}\n"
        "    {%- set text = text.split('</think>')[-1].lstrip('\n') %}\n  {%- endif %}\n"
        "  {{- '<|im_start|>' + m.role + '\n' + text + '<|im_end|>\n' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n  {{- '<|im_start|>assistant\n' }}\n"
        "  {%- if enable_thinking is defined and enable_thinking is false %}\n"
        "    {{- '<think>\n\n</think>\n\n' }}\n  {%- endif %}\n"
        "{%- endif %}"
    ),
    "begin-of-text token and headers": (
        "{{- bos_token }}\n{%- for m in messages %}\n"
        "{{- '<|head|>' + m['role'] + '<|/head|>\n\n' + m['content'] | trim + '<|eot|>' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\n\n' }}{%- endif %}"
    ),
}

CONVERSATIONS = {
    "one": [Message("user", "What is the capital of France?")],
    "system": [Message("system", "  Be brief.\n"), Message("user", "héllo 你好 🙂")],
    "several": [
        Message("user", "\nline\n\nbreaks\n"),
        Message("assistant", "<think>\nhm\n</think>\n\nYes."),
        Message("user", "a {{ 7 * 7 }} {% raw %} b"),
    ],
}


def render_with_jinja2(template: str, messages: list[Message], bos: str, eos: str) -> str:
    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    dicts = [{"role": message.role, "content": message.content} for message in messages]
    return environment.from_string(template).render(
        messages=dicts, add_generation_prompt=True, bos_token=bos, eos_token=eos
    )


def with_template(source: Path, template: str, folder: Path) -> Path:
    out = folder / "model.gguf"
    command = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", str(source), str(out), "--force"]
    subprocess.run([*command, "--chat-template", template], check=True, capture_output=True)
    return out


@pytest.mark.parametrize("name", TEMPLATES)
def test_renders_as_jinja2(name: str, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    path = with_template(tiny("llama-a"), TEMPLATES[name], tmp_path)
    with Engine() as engine, engine.open_model(path) as model:
        metadata = model.read_facts_json()["metadata"]
        bos, eos = (
            model.detokenize([int(metadata[f"tokenizer.ggml.{kind}_token_id"])], special=True).decode()
            if f"tokenizer.ggml.{kind}_token_id" in metadata
            else ""
            for kind in ("bos", "eos")
        )
        for messages in CONVERSATIONS.values():
            expected = render_with_jinja2(TEMPLATES[name], messages, bos, eos)
            rendered = model.apply_chat_template(messages)
            assert rendered.text == expected
            assert list(rendered.tokens) == model.tokenize(expected, add_special=False, parse_special=True)


def test_a_template_that_refuses_says_why(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    path = with_template(tiny("llama-a"), TEMPLATES["system folded into the first user turn"], tmp_path)
    messages = [Message("user", "a"), Message("user", "b")]
    with (
        Engine() as engine,
        engine.open_model(path) as model,
        pytest.raises(SyrinxError, match="roles must alternate"),
    ):
        model.apply_chat_template(messages)


@pytest.mark.parametrize("template", ["{% for m in messages %}", "{{ nothing.there.at_all() }}", "{{"])
def test_a_broken_template_is_an_error(template: str, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    path = with_template(tiny("llama-a"), template, tmp_path)
    with Engine() as engine, engine.open_model(path) as model, pytest.raises(SyrinxError):
        model.apply_chat_template(CONVERSATIONS["one"])
