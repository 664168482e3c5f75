"""Chat templates with the constructs that published ones use, and small expressions, as transformers renders them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from transformers.utils import chat_template_utils

from goldens import template_expressions

NOW = datetime.datetime(2026, 11, 9, 8, 5, 7)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class _Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return NOW


# The template of SmolLM2-135M-Instruct's GGUF file.
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI "
    "assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# Begins with BOS, trims, dates, tools in the first user message, a tool's answer as JSON.
LLAMA = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% else %}{% set date_string = "1 Jan 2024" %}{% endif %}
{%- endif %}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set head = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set head = "" %}
{%- endif %}
{{- "<|head|>system<|/head|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: tools\\n" }}{% endif %}
{{- "Today: " + date_string + "\\n\\n" + head + "<|eot|>" }}
{%- if tools is not none and messages %}
    {%- set first = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
    {{- '<|head|>user<|/head|>\\n\\nAnswer with a call of one of these.\\n\\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first + "<|eot|>" }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("One call at a time, please.") }}{% endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|/head|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}{{- "}" }}{{- "<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|head|>tool<|/head|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\\n\\n' }}{% endif %}
"""

# A namespace set from inside a loop over the reversed list, thoughts cut out of old turns, several calls in a turn.
QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{% endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{% endif %}
                {%- if call.function %}{% set call = call.function %}{% endif %}
                {{- '<tool_call>\\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
                {%- if call.arguments is string %}{{- call.arguments }}{% else %}{{- call.arguments | tojson }}{% endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}
"""

# Refuses what does not alternate, renames a role, takes lists of content parts.
GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("The speakers must take turns: user, assistant, user, ...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("What is this content?") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

# Macros that write a signature for each tool, dict methods, a name that is both an item and a method.
MACROS = """{%- macro kind(spec, required) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}{{ kind(spec['items'], false) + "[]" }}{%- else -%}any[]{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping -%}
        {{ spec.type | join(" | ") }}
    {%- elif spec.enum -%}
        {{ '"' + spec.enum | join('" | "') + '"' }}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}
            {{- "{" }}{% for name, inner in spec.properties.items() %}{{ name }}{% if name not in (spec.required or []) %}?{% endif %}: {{ kind(inner, spec.required or []) }}{% if not loop.last %}, {% endif %}{% endfor %}{{ "}" -}}
        {%- else -%}object{%- endif -%}
    {%- else -%}{{ spec.type | default("any") }}{%- endif -%}
{%- endmacro -%}
{%- macro signatures(tools) -%}
    {%- for tool in tools %}{% set f = tool.function -%}
        {{- "// " + f.description | replace("\\n", " ") + "\\n" }}
        {{- "type " + f.name + " = (_: {\\n" }}
        {%- for name, spec in f.parameters.properties.items() %}
            {%- if spec.description %}{{ "// " + spec.description + "\\n" }}{% endif %}
            {{- name + ("" if name in f.parameters.required else "?") + ": " + kind(spec, f.parameters.required) }}
            {%- if spec.default is defined %}, // default: {{ spec.default if spec.default is string else spec.default|tojson }}{% endif %}
            {{- ",\\n" if not loop.last else "\\n" }}
        {%- endfor %}
        {{- "}) => any;\\n\\n" }}
    {%- endfor %}
{%- endmacro -%}
{{- "<|start|>system<|message|>" + model_identity | default("You are a model.") + "\\nDate: " + strftime_now("%Y-%m-%d") }}
{%- if tools %}{{ "\\n# Tools\\n" + signatures(tools) }}{% endif %}
{{- "<|end|>" }}
{%- for message in messages -%}
    {{- "<|start|>" ~ message.role ~ "<|message|>" ~ (message.content or "") ~ "<|end|>" }}
{%- endfor -%}
{%- if add_generation_prompt %}<|start|>assistant{% endif -%}
"""

# Loop controls, filters over lists, a check of ids, tools before the last user message.
MISTRAL = """{%- set system = messages[0]["content"] if messages and messages[0]["role"] == "system" else none %}
{%- set rest = messages[1:] if system is not none else messages %}
{%- set users = rest | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(seen=0) %}
{{- bos_token }}
{%- for message in rest | rejectattr("role", "equalto", "tool") %}
    {%- if message.get("tool_calls") is none and message["role"] == "assistant" and not message["content"] %}{% continue %}{% endif %}
    {%- if message["content"] == "STOP" %}{% break %}{% endif %}
    {%- if message["role"] == "user" %}
        {%- set ns.seen = ns.seen + 1 %}
        {%- if tools is not none and message == users[-1] %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{% else %}{{- '"' + key + '": ' + val|tojson }}{% endif %}
                    {%- if not loop.last %}{{- ", " }}{% endif %}
                {%- endfor %}
                {{- "}}" }}{% if not loop.last %}{{- ", " }}{% else %}{{- "]" }}{% endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " }}{% if system is not none and ns.seen == users | length %}{{- system + "\\n\\n" }}{% endif %}{{- message["content"] + "[/INST]" }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}
            {{- out[:-1] }}
            {%- if call.id is not defined or call.id | length != 9 %}{{- raise_exception("A call's id has nine characters.") }}{% endif %}
            {{- ', "id": "' + call.id + '"}' }}{{ ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- else %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- endif %}
{%- endfor %}
"""

# White space that trim_blocks and lstrip_blocks take away, comments, raw, filter blocks, training marks.
BLOCKS = """
{# a comment #}
{% for message in messages %}
    {% if message.role == "user" %}
User: {{ message.content }}
    {% elif message.role == "assistant" %}
  {% generation %}
Model: {{ message.content -}}
  {% endgeneration %}

    {% else %}
	{% filter upper %}{{ message.role }}{% endfilter %}: {{ message.content|indent(2) }}
    {% endif %}
{% endfor %}
{% raw %}{{ not an expression }}{% endraw %}

{%+ if add_generation_prompt %}  Model:{% endif %}
{%- set block %}
  captured {{ messages|length }}
{% endset +%}
{{ block|trim }}|{{ messages|map(attribute="role")|join(",") }}

"""

TEMPLATES = {"smollm2": SMOLLM2, "llama": LLAMA, "qwen": QWEN, "gemma": GEMMA, "macros": MACROS, "mistral": MISTRAL, "blocks": BLOCKS}

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a place,\nas <b>HTML</b> & more", "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "description": "Ville, e.g. \"Zürich\" or 서울"}, "unit": {"enum": ["C", "F"], "default": "C"},
                "days": {"type": ["integer", "null"], "default": 3}, "items": {"type": "array", "items": {"type": "number"}},
                "keys": {"type": "object", "properties": {"get": {"type": "boolean"}, "lat": {"type": "number", "default": 1.0}}, "required": ["lat"]}}}}},
    {"type": "function", "function": {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}, "required": []}}},
]
CALL = {"id": "abcdef123", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich <'\"&>", "days": 2.0, "items": [1e-7, 10, None, True]}}}
CHATS = {
    "one": [{"role": "user", "content": "Hello"}],
    "system": [{"role": "system", "content": "  Be brief.\n"}, {"role": "user", "content": " Why is <sky> \"blue\" & high?\n"}],
    "turns": [{"role": "user", "content": "안녕 😀"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi!"}, {"role": "user", "content": "más\tó"},
              {"role": "assistant", "content": "fin "}],
    "long": [{"role": "system", "content": "S"}, *[{"role": ["user", "assistant"][i % 2], "content": f"line {i}\n" * (i % 3)} for i in range(9)]],
    "calls": [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather?"},
              {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "{\"t\": 21.5}", "tool_call_id": "abcdef123"},
              {"role": "tool", "content": "ok"}, {"role": "assistant", "content": "21 °C"}, {"role": "user", "content": "Thanks"}],
    "two_calls": [{"role": "user", "content": "Both?"}, {"role": "assistant", "content": "Sure", "tool_calls": [CALL, {**CALL, "id": "123456789"}]},
                  {"role": "tool", "content": [{"a": 1}]}],
    "thinking": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4", "reasoning_content": "sum\n"}],
    "parts": [{"role": "system", "content": [{"type": "text", "text": "Sys"}]},
              {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What? "}]}],
    "twice": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "stop": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "STOP"}, {"role": "user", "content": "c"}],
    "none": [{"role": "user", "content": None}],
    "empty": [],
}

CONTEXT: dict[str, Any] = {
    "s": "Hello, World", "e": "", "u": "  Ünï 한국 😀\n", "q": "it's \"quoted\" <&>", "n": 7, "z": 0, "f": 2.5, "big": 12345678901234567, "neg": -3, "t": True, "no": False,
    "nil": None, "l": [3, 1, 2], "ls": ["b", "A", "c"], "d": {"b": 1, "a": [1, {"x": "y"}], "items": 5, "é": None}, "el": [], "ed": {},
    "rows": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "x", "v": 3}], "nested": {"a": {"b": {"c": 1}}},
}
SNIPPETS = """{{ s.upper() }}|{{ s.lower() }}|{{ s.title() }}|{{ s.capitalize() }}|{{ s.swapcase() }}|{{ u.strip() }}|{{ u.lstrip() }}|{{ u.rstrip() }}
{{ s.split(', ') }}|{{ s.split() }}|{{ s.split('l', 1) }}|{{ s.rsplit('l', 1) }}|{{ s.partition(',')|join('/') }}
{{ s.startswith('He') }}{{ s.endswith(('x', 'ld')) }}{{ s.find('o') }}{{ s.rfind('o') }}{{ s.count('l') }}{{ s.index('W') }}
{{ s.replace('l', 'L') }}|{{ s.replace('l', 'L', 1) }}|{{ s|replace('l', 'L') }}|{{ s|replace('l', 'L', 1) }}
{{ '-'.join(ls) }}|{{ ls|join }}|{{ l|join('/') }}|{{ rows|join(', ', attribute='k') }}
{{ s.isalpha() }}{{ 'ab'.isalpha() }}{{ '12'.isdigit() }}{{ ' '.isspace() }}{{ 'AB'.isupper() }}{{ 'ab1'.isalnum() }}{{ 'ab'.islower() }}
{{ '7'.zfill(3) }}|{{ 'ab'.ljust(4) }}|{{ 'ab'.rjust(4, '.') }}|{{ 'ab'.center(5) }}|{{ 'a\\nb\\r\\nc'.splitlines() }}
{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x-suffix'.removesuffix('-suffix') }}
{{ s[0] }}{{ s[-1] }}{{ s[1:4] }}{{ s[::-1] }}{{ s[-3:] }}{{ s[:-1] }}{{ s[::2] }}{{ s[10:2:-3] }}
{{ l[0] }}{{ l[-1] }}{{ l[1:] }}{{ l[::-1] }}{{ l[:2] }}{{ l[5:] }}{{ l[::2] }}
{{ l }}|{{ ls }}|{{ d }}|{{ rows }}|{{ nil }}|{{ t }}|{{ no }}|{{ f }}|{{ big }}|{{ el }}|{{ ed }}|{{ [q] }}|{{ [u] }}
{{ d|tojson }}|{{ d|tojson(indent=2) }}|{{ l|tojson(indent=4) }}|{{ el|tojson(indent=2) }}|{{ ed|tojson(indent=2) }}
{{ q|tojson }}|{{ u|tojson }}|{{ u|tojson(ensure_ascii=true) }}|{{ d|tojson(sort_keys=true) }}|{{ d|tojson(separators=(',', ':')) }}
{{ [1.0, 1e16, 1e-5, 0.1, 100000.0, 123456789.123, -0.0]|tojson }}|{{ [1.0, 1e16, 1e-5, 0.1, 100000.0, -0.0] }}
{{ '\\x07\\x1f\\x7f'|tojson }}|{{ 'a/b\\\\c'|tojson }}|{{ t|tojson }}{{ nil|tojson }}{{ n|tojson }}
{{ {1: 2, none: 3}|tojson }}
{{ n + 1 }}|{{ n - 10 }}|{{ n * 2 }}|{{ n / 2 }}|{{ n // 2 }}|{{ neg // 2 }}|{{ n % 4 }}|{{ neg % 5 }}|{{ 2 ** 10 }}|{{ -n }}|{{ 4 / 2 }}|{{ 7.5 // 2 }}
{{ f + 1 }}|{{ f * 2 }}|{{ n + f }}|{{ 0.1 + 0.2 }}|{{ 1e3 }}|{{ t + 1 }}|{{ 10 ** 20 }}|{{ 3 * 'ab' }}|{{ l * 2 }}|{{ l + [4] }}
{{ s ~ n ~ t ~ nil ~ f ~ l }}|{{ 'a' 'b' }}|{{ 'a' + 'b' }}
{{ 1 < 2 }}{{ 2 <= 2 }}{{ 'a' < 'b' }}{{ 1 == 1.0 }}{{ 'a' != 'b' }}{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ l == [3, 1, 2] }}{{ d.a == [1, {'x': 'y'}] }}
{{ 'ell' in s }}{{ 'z' in s }}{{ 3 in l }}{{ 9 not in l }}{{ 'b' in d }}{{ 'zz' in d }}{{ nil in [none] }}{{ '' in s }}
{{ t and 'x' }}|{{ no or 'y' }}|{{ e or 'z' }}|{{ not t }}|{{ not el }}|{{ nil or el }}|{{ z and n }}|{{ n and z }}
{{ 'yes' if t else 'no' }}|{{ 'yes' if no }}|{{ ('a' if no else 'b') ~ 'c' }}
{{ missing }}|{{ missing|default('d') }}|{{ e|default('d') }}|{{ e|default('d', true) }}|{{ nil|default('d') }}|{{ missing is defined }}|{{ d.zz is defined }}|{{ d.zz }}
{{ missing|length }}|{{ missing|list }}|{{ missing|upper }}|{% for x in missing %}x{% endfor %}|{{ 'a' if missing else 'b' }}|{{ missing == none }}
{{ s is string }}{{ n is number }}{{ t is boolean }}{{ t is number }}{{ t is integer }}{{ n is integer }}{{ f is float }}{{ l is sequence }}{{ s is sequence }}{{ d is sequence }}
{{ d is mapping }}{{ l is mapping }}{{ s is iterable }}{{ l is iterable }}{{ n is iterable }}{{ d is iterable }}{{ nil is none }}{{ n is odd }}{{ n is even }}{{ 6 is divisibleby 3 }}
{{ t is true }}{{ no is false }}{{ 1 is true }}{{ 'a' is eq 'a' }}{{ n is gt 3 }}{{ 'b' is in ls }}{{ n is not none }}{{ 'ab' is lower }}{{ 'AB' is upper }}{{ nil is undefined }}
{{ d.items()|length }}|{{ d.keys()|list }}|{{ d.values()|list }}|{{ d.get('b') }}|{{ d.get('zz') }}|{{ d.get('zz', 4) }}|{{ d['items'] }}|{{ d['é'] }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}|{% for k, v in d|items %}{{ k }};{% endfor %}|{% for k in d %}{{ k }};{% endfor %}|{% for k, v in d|dictsort %}{{ k }};{% endfor %}
{{ l|sort }}|{{ l|sort(reverse=true) }}|{{ ls|sort }}|{{ ls|sort(case_sensitive=true) }}|{{ rows|sort(attribute='v')|map(attribute='v')|list }}
{{ l|first }}|{{ l|last }}|{{ l|min }}|{{ l|max }}|{{ l|sum }}|{{ l|length }}|{{ l|reverse|list }}|{{ s|reverse }}|{{ [1,1,2]|unique|list }}|{{ el|first }}
{{ rows|selectattr('k', 'equalto', 'x')|list|length }}|{{ rows|rejectattr('k', 'eq', 'x')|map(attribute='v')|first }}|{{ rows|selectattr('v')|list|length }}|{{ rows|map(attribute='zz', default='-')|list }}
{{ l|select('gt', 1)|list }}|{{ l|reject('odd')|list }}|{{ ls|map('upper')|list }}|{{ ls|select('in', ['A'])|list }}|{{ rows|sum(attribute='v') }}
{% for g in rows|groupby('k') %}{{ g.grouper }}:{{ g.list|length }};{% endfor %}|{{ l|batch(2)|list }}|{{ l|batch(2, 0)|list }}
{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent(1, blank=true) }}|{{ 'a\\nb'|indent('> ') }}
{{ u|trim }}|{{ 'xxaxx'|trim('x') }}|{{ s|upper }}|{{ s|lower }}|{{ 'hello wORLD'|title }}|{{ 'hELLO'|capitalize }}|{{ "they're here-now (yes)"|title }}
{{ '12'|int }}|{{ 'x'|int }}|{{ 'x'|int(5) }}|{{ '3.7'|int }}|{{ f|int }}|{{ '2.5'|float }}|{{ 'x'|float }}|{{ n|float }}|{{ n|string }}|{{ t|int }}|{{ neg|abs }}|{{ 2.567|round(2) }}|{{ 2.4|round }}
{{ l|string }}|{{ nil|string }}|{{ d|string|length }}|{{ t|string }}|{{ s|list }}|{{ d|list }}|{{ s|length }}|{{ u|length }}|{{ d|length }}|{{ d|count }}
{{ range(3)|list }}|{{ range(1, 4)|list }}|{{ range(5, 0, -2)|list }}|{% for i in range(2) %}{{ i }}{% endfor %}|{{ range(0)|list }}
{{ dict(a=1, b='x') }}|{{ {'a': 1}.a }}|{{ {'a': 1}['a'] }}|{{ [1, 'a', none] }}|{{ {'x': {'y': [1]}} }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}|{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}|{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}|{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}|{% for x in el %}x{% else %}empty{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{% endfor %}|{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }}{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = x + 1 %}{% endfor %}{{ x }}|{% set ns = namespace(x=1, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set c %}in {{ s }}{% endset %}{{ c }}|{% set c | upper %}in{% endset %}{{ c }}
{% macro m(a, b='x') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}|{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}x{% endcall %}
{% if n > 5 and s %}a{% elif n %}b{% else %}c{% endif %}|{% if not missing %}d{% endif %}
{% filter upper %}abc{{ s }}{% endfilter %}|{% raw %}{{ x }}{% endraw %}|{# no #}|{{ '{{' }}|{{ "a'b" }}|{{ 'a"b' }}|{{ 'a\\tb' }}
{{ nested.a.b.c }}|{{ nested['a']['b'] }}|{{ nested.a.x }}|{{ nested.a.x is defined }}|{{ nested.get('a', {}).get('zz', {}) }}
{{ [1, 2, 3][1] }}|{{ (1, 2)[0] }}|{{ 'abc'[1] }}|{{ [[1, 2], [3]][0][1] }}|{{ (n + 1) * 2 }}|{{ -2 ** 2 }}|{{ 2 - -1 }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %d %b %a %j %p %I %y') }}|{{ strftime_now('%-d/%-m %% x') }}
{{ raise_exception is defined }}|{{ strftime_now is defined }}|{{ foo_bar is defined }}
{{ l.index(1) }}|{{ l.count(3) }}|{{ 'a,b'.split(',')[1] }}|{{ s.split(',')[-1].strip() }}|{{ (s ~ '!').upper() }}
{{- s -}} x {{- n }}  {{ n -}}  y
{{ 'é' == 'é' }}|{{ '😀'|length }}|{{ '한국'[0] }}|{{ 'ẞ'.lower() }}|{{ 'ﬀ'.upper() }}|{{ 'İ'.lower()|length }}
{{ '%s is %d' | format('x', 3) }}|{{ '%(a)s' | format(a=l) }}|{{ '%s' % nil }}|{{ '%5.1f|%-4d|' % (f, n) }}|{{ '%s=%s' % ('a', 1) }}|{{ '%.2f' | format(3.14159) }}|{{ '%05d' % 42 }}
{{ 'a' in 'abc' and 'b' not in 'xyz' }}|{{ (1 in l) == true }}|{{ none == false }}|{{ '' == none }}|{{ 0 == false }}|{{ 1 == true }}
{{ u | trim | upper | replace('Ü', 'U') | length }}|{{ ls | map('lower') | sort | join('') }}|{{ [s, n] | map('string') | join(':') }}
{{ "\\n" in u }}|{{ u.strip().split(' ') | length }}|{{ 'a\\u00e9b' }}|{{ 'x' ~ '\\n' ~ 'y' }}
{{ (d.a | first) ~ (d.a | last).x }}|{{ d.a[1]['x'] }}|{{ d['a'][1].x }}
{{ l is sameas l }}|{{ e is string and e | length == 0 }}|{{ [] is iterable }}|{{ n is callable }}
{{ 'abc'.upper().lower().title() }}|{{ 'a b c'.split(' ', 1)[1] }}|{{ ['a', 'b'] | last }}|{{ 'b' ~ ['a'][0] }}
{{ ''.join(['a', 'b']) }}|{{ 'abc' | list | reverse | join }}|{{ [3, 1] | sort | first }}|{{ 'a-b_c'.replace('-', ' ').replace('_', ' ') }}
{{ missing.attr }}
{{ 'a' + 1 }}
{{ n / z }}
{{ n // z }}
{{ n % z }}
{{ 'x'|int + 'y' }}
{{ nil.x.y }}
{{ l|tojsonx }}
{{ s is foo }}
{{ unknown_function() }}
{{ s.unknown_method() }}
{{ l.append(1) }}
{{ d.update({'x': 1}) }}
{{ missing|tojson }}
{{ raise_exception('no ' ~ s) }}
{{ 'abc'.index('z') }}
{{ 5 in 7 }}
{{ n() }}
{{ [1]|join(missing_separator) }}|{{ [1, 2]|join(none) }}
{{ n < s }}
{{ nil < 1 }}
{{ l < d }}
""".splitlines()


def _render(source: str, variables: dict[str, Any]) -> dict[str, str]:
    try:
        return {"text": chat_template_utils._compile_jinja_template(source).render(**variables)}
    except Exception as error:  # noqa: BLE001: whatever it is, the engine must refuse too
        return {"error": f"{type(error).__name__}: {error}"}


def _chat(source: str, messages: list[Any], tools: list[Any] | None, prompt: bool, extra: dict[str, Any]) -> dict[str, str]:
    try:
        rendered, _ = chat_template_utils.render_jinja_template(
            conversations=[chat_template_utils._normalize_chat_messages(messages)], tools=tools, documents=None, chat_template=source, add_generation_prompt=prompt, **{**SPECIAL_TOKENS, **extra})
        return {"text": rendered[0]}
    except Exception as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {error}"}


def _fold(text: str) -> int:
    """FNV-1a with 64 bits, folded to 32: tests/text/goldens.h."""
    digest = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        digest = ((digest ^ byte) * 0x100000001B3) % (1 << 64)
    return (digest >> 32) ^ (digest & 0xFFFFFFFF)


# As transformers' apply_chat_template, the tokenizer's method, has them.
PUBLISHED_CHATS = ["one", "system", "turns", "long", "calls", "two_calls", "thinking", "parts", "none"]
EXTRA = {"enable_thinking": False, "date_string": "26 Jul 2024", "model_identity": "You are X."}


def _published(folder: Path) -> dict[str, list[int | str]]:
    """For each template, nine chats: the text's digest, or the error."""
    results: dict[str, list[int | str]] = {}
    for path in sorted(folder.glob("*.jinja")):
        results[path.stem] = []
        for index, chat in enumerate(PUBLISHED_CHATS):
            tools = TOOLS if index % 2 == 0 else None
            result = _chat(path.read_text(encoding="utf-8"), CHATS[chat], tools, index % 3 != 0, EXTRA if index > 4 else {})
            results[path.stem].append(_fold(result["text"]) if "text" in result else result["error"])
    return results


def make_differential(out: Path, expressions: int = 2400, statements: int = 800, programs: int = 600) -> None:
    """expressions.jsonl: a line for each source of template_expressions, with its text or null where Jinja2 fails. published.json: the digests
    of the templates in templates/."""
    chat_template_utils.datetime = _Frozen
    lines = []
    for source in template_expressions.sources(expressions, statements, programs):
        result = _render(source, template_expressions.CONTEXT)
        text = result.get("text")
        if text is None or (" at 0x" not in text and len(text) < 400 and not any("\ud800" <= c <= "\udfff" for c in text)):
            lines.append(json.dumps([source, text], ensure_ascii=False, separators=(",", ":")))
    head = json.dumps(template_expressions.CONTEXT, ensure_ascii=False)
    (out / "expressions.jsonl").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    published = {"chats": PUBLISHED_CHATS, "extra": EXTRA, "templates": _published(out / "templates")}
    text = json.dumps(published, ensure_ascii=False, separators=(",", ":")).replace("],", "],\n")
    (out / "published.json").write_text(text + "\n", encoding="utf-8")


def make(path: Path) -> None:
    chat_template_utils.datetime = _Frozen
    chats = []
    for name, source in TEMPLATES.items():
        for chat, messages in CHATS.items():
            for tools in (None, TOOLS):
                for extra in ({}, {"enable_thinking": False, "date_string": "26 Jul 2024", "model_identity": "You are X."}):
                    prompt = bool(extra) or chat != "thinking"
                    result = _chat(source, messages, tools, prompt, extra)
                    chats.append({"template": name, "chat": chat, "tools": tools is not None, "prompt": prompt, "extra": extra, **result})
    snippets = [{"source": source, **_render(source, CONTEXT)} for source in SNIPPETS if source]
    now = [NOW.year, NOW.month, NOW.day, NOW.hour, NOW.minute, NOW.second]
    golden = {"now": now, "special_tokens": SPECIAL_TOKENS, "templates": TEMPLATES, "tools": TOOLS, "chats": CHATS, "cases": chats, "context": CONTEXT,
              "snippets": snippets}
    path.write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
