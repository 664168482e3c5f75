"""Random expressions and statements of Jinja2 for a differential test, from a fixed seed."""

from __future__ import annotations

import random
import re
from typing import Any, Callable

SEED = 20261130

CONTEXT: dict[str, Any] = {
    "s": "Hello, World", "e": "", "u": "  Ünï 한국 😀\n", "q": "it's \"quoted\" <&>", "w": "the quick brown fox jumps over it", "n": 7, "z": 0,
    "neg": -3, "f": 2.5, "g": -0.125, "big": 12345678901234567, "t": True, "no": False, "nil": None, "l": [3, 1, 2], "ls": ["b", "A", "c"], "el": [],
    "mix": [1, "a", None, 2.0, True, [1, "x"]], "d": {"b": 1, "a": [1, {"x": "y"}], "items": 5, "é": None}, "ed": {}, "fs": [0.1, 1e20, -1.5, 1e-7],
    "rows": [{"k": "x", "v": 2}, {"k": "Y", "v": 1}, {"k": "x", "v": 3}], "nested": {"a": {"b": {"c": 1}}}, "pairs": [["a", 1], ["b", 2]],
    "m": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\nthere"}, {"role": "assistant", "content": None}],
}


class Maker:
    """Each method makes the source of an expression that has its type most of the time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def of(self, depth: int, *makers: Callable[[int], str]) -> str:
        return self.random.choice(makers)(depth - 1)

    # Literals.

    def small(self, _: int = 0) -> str:
        return self.pick("0", "1", "2", "3", "-1", "-2", "5", "7", "10", "25", "n", "neg", "z")

    def int_literal(self, _: int) -> str:
        return self.pick("0", "1", "2", "3", "-1", "7", "10", "25", "1_000", "0x1F", "0b101", "0o17", "99999999999", "n", "z", "neg", "t", "no", "big")

    def float_literal(self, _: int) -> str:
        return self.pick("0.5", "1.0", "-2.5", "1e3", "2.675", "1e-7", "1_0.25", "1.5e16", "f", "g", "0.1", "1234.5678", "1e22")

    def str_literal(self, _: int) -> str:
        return self.pick(
            "'a'", "'abc'", "''", "'Hello World'", "\"it's\"", "'a\\nb'", "'a\\tb\\n'", "'<\\/think>'", "'\\U0001F600'", "'\\u00e9t\\xe9'", "'\\101\\7'",
            "'x' 'y'", "'12'", "'3.7'", "' 42 '", "'ff'", "'0x1f'", "'1e3'", "'ß'", "'ǆ'", "'ÀÉ'", "'a,b,,c'", "'a-b c(d[e'", "'  pad  '", "'x=1&y=2/3'",
            "'\\'q\\''", "'\\\\n'", "'{}'", "'%s'", "'٣'", "'a\\u2028b\\x0bc'", "'AbC dEf'", "'i'", "s", "e", "u", "q", "w", "s", "w")

    def atom(self, depth: int) -> str:
        return self.of(depth, self.int_literal, self.float_literal, self.str_literal, self.str_literal,
                       lambda _: self.pick("none", "true", "false", "missing", "l", "ls", "d", "el", "ed", "rows", "mix", "nested", "fs", "pairs", "m", "nil"))

    # Types.

    def any(self, depth: int) -> str:
        if depth <= 0:
            return self.atom(depth)
        return self.of(depth, self.str, self.str, self.int, self.float, self.bool, self.list, self.dict, self.tuple, self.choice)

    def choice(self, depth: int) -> str:
        a, b, c = self.any(depth), self.any(depth), self.bool(depth)
        return self.pick(f"({a} and {b})", f"({a} or {b})", f"({a} if {c} else {b})", f"({a} if {c})", f"({a} and {b} or {a})", f"({a})|default({b})",
                         f"({a})|default({b}, true)", f"({a})|d({b}, boolean={c})")

    def int(self, depth: int) -> str:
        if depth <= 0:
            return self.int_literal(depth)
        i, j, s, items, small = self.int(depth - 1), self.int(depth - 1), self.str(depth - 1), self.list(depth - 1), self.small()
        return self.pick(
            f"({i} + {j})", f"({i} - {j})", f"({i} * {j})", f"({i} // {j})", f"({i} % {j})", f"({i} ** {self.pick('2', '3', '0')})", f"-{i}", f"+{i}",
            f"({s})|length", f"({items})|length", f"({items})|count", f"({s}).find({self.str_literal(0)})", f"({s}).find({self.str_literal(0)}, {small})",
            f"({s}).rfind('l', {small}, {small})", f"({s}).count({self.pick(chr(39) + 'o' + chr(39), chr(39) * 2, 'e')})", f"({s}).count('a', {small})",
            f"({s}).index({self.pick('e', repr('a'))})", f"({s}).rindex('b')", f"({s})|int", f"({s})|int({j})", f"({s})|int(base=16)", f"({s})|int(0, {self.pick('2', '8', '16', '0', '36')})",
            f"({self.float(depth - 1)})|int", f"({i})|abs", f"({s})|wordcount", f"({items})|sum", f"({i})|round(-1)", f"({i})|round({small})", f"rows|sum(attribute='v')",
            f"({items})|first", f"({items})|max", f"({items})|min", f"l[{small}]", f"({items})[{small}]", f"l.index({small})", f"mix.count({i})", f"({i})|round({small}, {self.pick(chr(39) + 'ceil' + chr(39), chr(39) + 'floor' + chr(39))})")

    def float(self, depth: int) -> str:
        if depth <= 0:
            return self.float_literal(depth)
        i, x = self.int(depth - 1), self.float(depth - 1)
        return self.pick(
            f"({i} / {self.int(depth - 1)})", f"({x} + {i})", f"({x} * {x})", f"({x} - {i})", f"({x} // {i})", f"({x} % {i})", f"({x} ** 2)", f"({i} ** -1)",
            f"({x})|round", f"({x})|round(1)", f"({x})|round(2)", f"({x})|round(-1)", f"({x})|round(1, 'ceil')", f"({x})|round(1, 'floor')", f"({x})|round(method='ceil')",
            f"({x})|round(precision=2, method='common')", f"({x})|abs", f"({i})|float", f"({self.str(depth - 1)})|float", f"({self.str(depth - 1)})|float({x})", f"-{x}", "fs|sum", "fs|max")

    def bool(self, depth: int) -> str:
        if depth <= 0:
            return self.pick("true", "false", "t", "no", "n == 7", "s is string", "l", "el", "missing")
        a, b, s, t = self.any(depth - 1), self.any(depth - 1), self.str(depth - 1), self.str(depth - 1)
        i, j, items = self.int(depth - 1), self.int(depth - 1), self.list(depth - 1)
        test = self.pick("defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "iterable", "sequence",
                         "callable", "lower", "upper", "escaped")
        return self.pick(
            f"({a} == {b})", f"({a} != {b})", f"({i} < {j})", f"({s} < {t})", f"({i} <= {j} < 100)", f"({i} >= {j})", f"({items} < {self.list(depth - 1)})", f"not {a}",
            f"({s} in {t})", f"({a} in {items})", f"({a} not in {items})", f"({s} in d)", f"({a}) is {test}", f"({a}) is not {test}", f"({i}) is odd", f"({i}) is even",
            f"({i}) is divisibleby {self.pick('2', '3')}", f"({i}) is divisibleby({j})", f"({a}) is eq({b})", f"({a}) is ne {self.atom(0)}", f"({i}) is gt {self.small()}",
            f"({i}) is le({j})", f"({a}) is in({items})", f"({s}).startswith({t})", f"({s}).endswith({t})", f"({s}).startswith(('He', {t}))", f"({s}).startswith('e', {self.small()})",
            f"({s}).endswith(('d', 'x'), 0, {self.small()})", f"({s}).{self.pick('isalpha', 'isalnum', 'isdigit', 'isdecimal', 'isnumeric', 'islower', 'isupper', 'isspace', 'istitle', 'isascii', 'isprintable')}()",
            f"({a}) is sameas none", f"({a}) is sameas true", f"'{self.pick('upper', 'nope', 'wordcount')}' is filter", f"'{self.pick('defined', 'nope')}' is test", f"({a} and {b})", f"({a} or {b})")

    def str(self, depth: int) -> str:
        if depth <= 0:
            return self.str_literal(depth)
        s, t, i, a, items, small = self.str(depth - 1), self.str(depth - 1), self.int(depth - 1), self.any(depth - 1), self.list(depth - 1), self.small()
        method = self.pick("upper", "lower", "title", "capitalize", "swapcase", "strip", "lstrip", "rstrip", "casefold", "expandtabs")
        spec = self.pick("", ":>8", ":<8", ":^9", ":*^7", ":.2", "!r", "!s", "!r:>9", "!a", ":d", ":05", ":+d", ":,", ":.1f", ":x", ":#x", ":b", ":e", ":g", ":%", ":08.3f", ":_")
        conversion = self.pick("%s", "%r", "%5s|", "%-5s|", "%.2s", "%d", "%05d", "%+d", "%x", "%#x", "%o", "%.2f", "%8.3f", "%e", "%g", "%c", "%i", "%%", "%a", "%G")
        width = self.pick("0", "3", "8", "15")
        return self.pick(
            f"({s} ~ {a})", f"({a} ~ {s} ~ {i})", f"({s} + {t})", f"({s} * {self.pick('2', '0', '3', '-1')})", f"({s}).{method}()", f"({s}).strip({self.pick(repr('a '), repr('Hd'), repr(''))})",
            f"({s}).replace({self.str_literal(0)}, {t})", f"({s}).replace('l', {t}, {small})", f"({s})|replace('o', {a})", f"({s})|replace({self.str_literal(0)}, '-', {small})",
            f"({s})[{small}]", f"({s})[{small}:]", f"({s})[:{small}]", f"({s})[{small}:{small}]", f"({s})[::-1]", f"({s})[::{self.pick('2', '-2', '3')}]", f"({s})|{self.pick('upper', 'lower', 'title', 'capitalize', 'trim', 'string', 'reverse', 'urlencode')}",
            f"({a})|{self.pick('upper', 'lower', 'title', 'capitalize', 'trim', 'string')}", f"({s})|trim({self.pick(repr('a'), repr(' H'))})", f"({s})|center({width})", f"({s}).center({width}, '*')", f"({s}).ljust({width})",
            f"({s}).rjust({width}, '.')", f"({s}).zfill({width})", f"({s})|truncate({self.pick('5', '10', '12')})", f"({s})|truncate(7, true, {self.pick(repr('..'), repr('…'))}, 0)", f"({s})|truncate(9, leeway=0)",
            f"({s})|indent", f"({s})|indent({width}, true)", f"({s})|indent(2, first=false, blank=true)", f"({s})|indent('> ')", f"({items})|join({self.str_literal(0)})", f"({items})|join", f"({s}).join(({items})|map('string'))",
            f"({a})|tojson", f"({a})|tojson(indent={self.pick('0', '2', repr('-'))})", f"({a})|tojson(ensure_ascii=true, sort_keys=true)", f"({a})|tojson(separators=(',', ':'))", f"'{conversion}' % {self.pick(a, i, s, self.float(depth - 1))}",
            f"'{conversion} {conversion}' % ({a}, {i})", f"'{conversion}'|format({a})", f"'%(a)s-%(b)5s'|format(a={a}, b={i})", f"'{{{spec}}}'.format({a})", f"'{{0{spec}}} {{1}} {{0}}'.format({i}, {s})", f"'{{a[0]}} {{b.x}}'.format(a={s}, b={a})",
            f"'{{:{{}}}}|'.format({s}, {width})", f"({s}).removeprefix('He')", f"({s}).removesuffix({t})", f"({items})|first", f"({items})|last", f"({s}).partition({self.str_literal(0)})|join('|')", f"({s}).rsplit(none, 1)|last",
            f"({s})|e", f"({i})|filesizeformat", f"({i})|string", f"({s})|default({t}, true)", f"({a})|urlencode", f"({s}).format({a}, {i})", f"({s} if {self.bool(depth - 1)} else {t})", "strftime_now('%d %b %Y')", "strftime_now('%-d/%_m %A %j %p')")

    def list(self, depth: int) -> str:
        if depth <= 0:
            return self.pick("l", "ls", "el", "mix", "[1, 2]", "['a', 'b']", "fs", "[]", "range(3)|list", "rows", "[none, true]", "pairs", "[[1], [2, 3]]", "['b', 'a', 'B']")
        a, b, s, items, i, small = self.any(depth - 1), self.any(depth - 1), self.str(depth - 1), self.list(depth - 1), self.int(depth - 1), self.small()
        return self.pick(
            f"[{a}, {b}]", f"[{a}]", f"({items} + {self.list(depth - 1)})", f"({items} * {self.pick('2', '0')})", f"({items})[{small}:]", f"({items})[:{small}]", f"({items})[::-1]", f"({items})[{small}:{small}:{self.pick('1', '2', '-1')}]",
            f"({items})|sort", f"({items})|sort(reverse=true)", f"({items})|sort(case_sensitive=true)", f"rows|sort(attribute={self.pick(repr('k'), repr('v'), repr('k,v'))})", f"({items})|unique|list", f"({items})|reverse|list", f"({items})|map({self.pick(repr('string'), repr('upper'), repr('length'), repr('tojson'))})|list",
            f"rows|map(attribute='k')|list", f"rows|map(attribute='zz', default={a})|list", f"({items})|select|list", f"({items})|reject|list", f"({items})|select({self.pick(repr('string'), repr('odd'), repr('defined'), repr('none'))})|list", f"({items})|select('gt', 1)|list", f"({items})|reject('in', {items})|list",
            f"rows|selectattr('k', 'equalto', 'x')|list", f"rows|rejectattr('v', 'lt', 2)|list", f"m|selectattr('content')|map(attribute='role')|list", f"({items})|batch({self.pick('2', '3')})|list", f"({items})|batch(2, {a})|list", f"({items})|slice({self.pick('2', '3')})|list", f"({items})|slice(2, {a})|list",
            f"({s}).split()", f"({s}).split({self.pick(repr(','), repr(' '), repr('l'))})", f"({s}).split(' ', {small})", f"({s}).rsplit('l', 1)", f"({s}).split(sep=',', maxsplit=1)", f"({s}).splitlines()", f"({s}).splitlines(true)", f"({s})|list", f"range({small}, {self.pick('6', '9')})|list", f"range({i} % 9)|list", f"d|dictsort", f"d|items|list", f"({self.dict(depth - 1)})|list", f"({self.dict(depth - 1)}).items()|list", f"({self.dict(depth - 1)}).values()|list", f"({items})|list", f"rows|groupby('k')|map(attribute='list')|map('length')|list", f"rows|groupby('k')")

    def tuple(self, depth: int) -> str:
        a, b = self.any(depth - 1), self.any(depth - 1)
        return self.pick(f"({a}, {b})", f"({a},)", "()", f"({a}, {b}) + (1,)", f"({a}, {b})[{self.small()}]", f"({a}, {b})|list", f"({a}, {b}) * 2")

    def dict(self, depth: int) -> str:
        if depth <= 0:
            return self.pick("d", "ed", "{'a': 1}", "nested", "rows[0]", "m[1]", "{1: 'x', none: 2}", "dict(a=1, b='x')", "dict(pairs)")
        a, b, s = self.any(depth - 1), self.any(depth - 1), self.str(depth - 1)
        return self.pick(f"{{'k': {a}, {s}: {b}}}", f"{{{self.int(depth - 1)}: {a}}}", f"dict({{'a': {a}}}, b={b})", f"dict(rows[1], v={a})", f"({self.dict(depth - 1)}).copy()", f"({self.dict(depth - 1)}).get('a', {b})", f"({self.dict(depth - 1)}).a",
                         f"({self.dict(depth - 1)})['a']", f"d.{self.pick('items()', 'keys()', 'values()', 'a', 'b', 'zz', 'get')}", f"dict.fromkeys({self.list(depth - 1)}, {a})")

    def expression(self) -> str:
        return "{{ " + self.any(self.pick(1, 2, 2, 3)) + " }}"

    # Statements.

    def statement(self) -> str:
        a, b, s, i, items, c = self.any(1), self.any(1), self.str(1), self.int(1), self.list(1), self.bool(1)
        loop = self.pick("index", "index0", "first", "last", "length", "revindex", "revindex0", "depth", "previtem", "nextitem", "cycle('a', 'b')", "changed(x)")
        minus, plus = self.pick("", "-", "+"), self.pick("", "-")
        return self.pick(
            f"{{% for x in {items} %}}{{{{ loop.{loop} }}}}:{{{{ x }}}};{{% else %}}none{{% endfor %}}", f"{{% for x in {a} %}}[{{{{ x }}}}]{{% endfor %}}", f"{{% for x in {items} if x %}}{{{{ x ~ loop.index }}}},{{% endfor %}}",
            f"{{% for k, v in ({self.dict(1)}).items() %}}{{{{ k }}}}={{{{ v }}}} {{% endfor %}}", f"{{% for x in {items} %}}{{% if loop.index == 2 %}}{{% {self.pick('break', 'continue')} %}}{{% endif %}}{{{{ x }}}}{{% endfor %}}", f"{{% if {a} %}}A{{% elif {c} %}}B{{% else %}}C{{% endif %}}",
            f"{{% set x = {a} %}}{{{{ x }}}}|{{{{ x is string }}}}", f"{{% set x, y = {a}, {b} %}}{{{{ y }}}}{{{{ x }}}}", f"{{% set x, y = {items} %}}{{{{ y }}}}{{{{ x }}}}", f"{{% set x %}}<{{{{ {a} }}}}>{{% endset %}}{{{{ x ~ x|length }}}}", f"{{% set x | {self.pick('upper', 'trim', 'length', 'replace(1, 2)', 'list|join(0)')} %}} a{{{{ {a} }}}} {{% endset %}}{{{{ x }}}}",
            f"{{% set x = 0 %}}{{% for y in {items} %}}{{% set x = x + 1 %}}{{{{ x }}}}{{% endfor %}}{{{{ x }}}}", f"{{% set ns = namespace(a={a}, n=0) %}}{{% for y in {items} %}}{{% set ns.n = ns.n + 1 %}}{{% set ns.a = y %}}{{% endfor %}}{{{{ ns.n }}}}{{{{ ns.a }}}}{{{{ ns }}}}", f"{{% set ns = namespace({self.dict(1)}) %}}{{{{ [ns, ns.a] }}}}{{{{ ns.zz is defined }}}}",
            f"{{% macro f(a, b={b}) %}}<{{{{ a }}}}{{{{ b }}}}>{{% endmacro %}}{{{{ f({a}) }}}}{{{{ f(1, b=2) }}}}{{{{ f(b=3) }}}}", f"{{% macro f(a) %}}{{{{ a }}}}{{{{ varargs }}}}{{{{ kwargs }}}}{{% endmacro %}}{{{{ f({a}, {b}, k={i}) }}}}{{{{ f() }}}}{{{{ f(*{items}, **{self.dict(0)}) }}}}", f"{{% macro f() %}}[{{{{ caller({i}) }}}}]{{% endmacro %}}{{% call(x) f() %}}{{{{ x ~ {a} }}}}{{% endcall %}}", f"{{% macro f(x) %}}{{{{ caller() if caller else 'no' }}}}{{{{ x }}}}{{% endmacro %}}{{{{ f({a}) }}}}{{% call f(1) %}}in{{% endcall %}}", f"{{% macro f() %}}{{{{ y }}}}{{% endmacro %}}{{% set y = {a} %}}{{{{ f() }}}}{{% set y = 2 %}}{{{{ f() }}}}", f"{{% macro f(n) %}}{{{{ n }}}}{{{{ f(n - 1) if n > 0 }}}}{{% endmacro %}}{{{{ f(3) }}}}{{{{ f.name }}}}{{{{ f.arguments }}}}",
            f"{{% with x = {a}, y = n %}}{{{{ x }}}}{{{{ y }}}}{{% endwith %}}{{{{ x }}}}", f"{{% filter {self.pick('upper', 'trim', 'title', 'indent(2)', 'length')} %}} a\n{{{{ {a} }}}}\n {{% endfilter %}}", f"{{% for x in [[1, [2, [3]]], [4]] recursive %}}{{{{ x if x is number else '(' ~ loop(x) ~ ')' }}}}{{{{ loop.{self.pick('depth', 'depth0', 'index', 'last')} }}}}{{% endfor %}}", f"a {minus}{{%{minus} if {c} {plus}%}} \n x \n {{%{plus} endif {plus}%}} \n b\n", f"  {{%{minus} set x = 1 {plus}%}}\n  {{{{{plus} {a} {plus}}}}}\n {{#{plus} note {plus}#}}\n x\n", f"a\n  {{%{minus} raw {plus}%}} {{{{ x }}}} {{%{plus} endraw {plus}%}}\n b\n",
            f"{{% set c = cycler({a}, {b}) %}}{{{{ c.next() }}}}{{{{ c.next() }}}}{{{{ c.current }}}}{{{{ c.reset() }}}}{{{{ c.next() }}}}", f"{{% set j = joiner({self.pick('', repr('|'))}) %}}{{% for x in {items} %}}{{{{ j() }}}}{{{{ x }}}}{{% endfor %}}", f"{{% set x = {items} | map('string') %}}{{{{ x | list }}}}{{{{ x | list }}}}", f"{{% for x in {items} %}}{{% for y in [loop.index, x] %}}{{{{ loop.first }}}}{{{{ y }}}}{{% endfor %}}{{{{ loop.last }}}}{{% endfor %}}", f"{{% print {a} %}}{{% generation %}}{{{{ {s} }}}}{{% endgeneration %}}", f"{{% if {c} %}}{{% set x = {a} %}}{{% endif %}}{{{{ x }}}}{{{{ x is defined }}}}", f"{{{{ {a}, {b} }}}}", f"{{{{ raise_exception({s}) }}}}", f"a\r\n{{% if true %}}\r\nb\r{{% endif %}}\r\n{{{{ {s} }}}}\r\n", f"{{{{ loop }}}}{{% for x in {items} %}}{{{{ loop }}}}{{% endfor %}}", f"{{{{ {s}.nope }}}}{{{{ {self.dict(1)}['nope'] }}}}{{{{ missing.x }}}}")

    # Programs: what a name means where, in blocks inside each other.

    def block(self, depth: int, loops: int) -> str:
        return "".join(self.step(depth, loops) for _ in range(self.pick(1, 2, 3)))

    def step(self, depth: int, loops: int) -> str:
        name, other, value = self.pick("x", "y", "n", "ns"), self.pick("x", "y", "n", "ns"), self.pick("1", "'v'", "x", "y", "n", "[x]", "(x, y)", "y ~ 'q'")
        if depth <= 0 or self.pick(0, 1):
            return self.pick(f"{{{{ {name} }}}}", f"{{{{ {name} }}}},", f"{{% set {name} = {value} %}}", f"{{% set {name} = {value} %}}", f"{{{{ {name} is defined }}}}", f"{{{{ loop.index if loop }}}}",
                             f"{{% set {name}, {other} = {value}, 2 %}}", f"{{{{ f({value}) if f }}}}", "{% set ns.v = " + value + " %}", "{{ ns.v }}", f"{{{{ [{name}, {other}] }}}}",
                             "{% break %}" if loops else "-", "{% if " + name + " == 2 %}{% continue %}{% endif %}" if loops else "+", "{{ caller(x) if caller }}", "{{ varargs }}")
        inner = self.block(depth - 1, loops)
        fresh = self.block(depth - 1, 0)
        body = fresh.replace("f(", "g(").replace("if f ", "if g ")  # no macro calls itself
        return self.pick(
            f"{{% if {name} %}}{inner}{{% endif %}}", f"{{% if {name} is defined %}}{inner}{{% else %}}{self.block(depth - 1, loops)}{{% endif %}}", f"{{% for {name} in [1, 2] %}}{self.block(depth - 1, 1)}{{% endfor %}}",
            f"{{% for {name} in [1, 2, 3] if {name} != {other} %}}{self.block(depth - 1, 1)}{{% else %}}{fresh}{{% endfor %}}", f"{{% with {name} = {value} %}}{fresh}{{% endwith %}}", f"{{% set {name} %}}{fresh}{{% endset %}}",
            f"{{% macro f(x, y={value}) %}}{body}{{% endmacro %}}{{{{ f(1) }}}}", f"{{% macro f({name}=2) %}}{body}{{% endmacro %}}", f"{{% call({name}) f(2) %}}{body}{{% endcall %}}", f"{{% filter upper %}}{fresh}{{% endfilter %}}",
            f"{{% generation %}}{fresh}{{% endgeneration %}}", f"{{% for {name}, {other} in [(1, 2)] %}}{self.block(depth - 1, 1)}{{% endfor %}}", "{% set ns = namespace(v=1) %}")

    def program(self) -> str:
        return self.pick("", "{% set ns = namespace(v=0) %}", "{% set x = 5 %}") + re.sub(
            r"\b([fg])(?=\(| if | %| }})", r"\1a", self.block(3, 0) + self.block(2, 0)) + "{{ x }}{{ y }}"


def sources(expressions: int, statements: int, programs: int) -> list[str]:
    maker = Maker(SEED)
    made: dict[str, None] = {}
    while len(made) < expressions:
        made[maker.expression()] = None
    while len(made) < expressions + statements:
        made[maker.statement()] = None
    while len(made) < expressions + statements + programs:
        source = maker.program()
        if len(source) < 400:
            made[source] = None
    return list(made)
