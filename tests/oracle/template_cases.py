"""Writes tests/text/template/cases.inc: small templates with what jinja2 makes of them in transformers' environment.

    python tests/oracle/template_cases.py            writes the file
    python tests/oracle/template_cases.py --check    exit code 1 where it would be another
"""

import datetime
import pathlib
import sys

from transformers.utils import chat_template_utils

CASES = pathlib.Path(__file__).parents[1] / "text/template/cases.inc"
VARIABLES = {"m": {"items": 1, "b": [1, 2.0, None, True, "it's"]}, "s": "a-ü-c", "n": 7, "f": 1e16,
             "rows": [{"k": "B", "v": 2}, {"k": "a", "v": 1}]}
SOURCES = r"""
{{ m.b }}|{{ m['items'] }}|{{ m.items() | list }}
{{ f }} {{ 0.1 }} {{ 1e-5 }} {{ 1e22 }} {{ 123456.75 }} {{ -0.0 }} {{ 5.0 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}
{{ 'b' in 'abc' }} {{ 1 in [1.0] }} {{ 'x' not in m }} {{ 'items' in m }} {{ 3 in x }}
{{ x }}|{{ x is defined }}|{{ x is none }}|{{ x | default('d') }}|{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ x | length }}
{{ m.nothing is defined }} {{ m['nothing'] }} {{ s.nothing }} {{ none.x }} {{ [1][5] }} {{ 'abc'[9] }}
{{ s[0] }} {{ s[2] }} {{ s[-1] }} {{ s[1:] }} {{ s[::-1] }} {{ s[:-2] }} {{ s[10:] }} {{ [1,2,3,4][1:3] }} {{ [1,2,3,4][::-2] }}
{{ s.split('-') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a\nb\r\nc'.splitlines() }}
{{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxa'.lstrip('x') }}|{{ 'axx'.rstrip('x') }}|{{ ' x ' | trim }}
{{ 'straße' | upper }} {{ 'ÀB' | lower }} {{ 'hello world' | title }} {{ 'HELLO world' | capitalize }} {{ 'ΑΣ' | lower }} {{ 'ǆx'.title() }}
{{ 'a' ~ 1 ~ none ~ 1.5 }} {{ 'ab' * 3 }} {{ [1] * 2 }} {{ [1] + [2] }} {{ (1,) + (2, 3) }} {{ (1,) }} {{ () }}
{{ 'a' if false }}|{{ 'a' if true else 'b' }}|{{ 'a' if false else 'b' if false else 'c' }}
{{ 0 or 'x' }} {{ '' and 'x' }}|{{ not [] }} {{ 1 and 2 }}
{{ m | tojson }} {{ 'é<>&\'"\n\t\x01' | tojson }} {{ 'é' | tojson(ensure_ascii=true) }}
{{ {'b': 1, 'a': [1, {}], 'c': {}} | tojson(indent=2) }}
{{ {'b': 1, 'a': [1, 2]} | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ {1: 2, true: 3, none: 4} | tojson }}
{% for x in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ x }}{{ loop.index }}{{ loop.last }}{% else %}none{% endfor %}
{% for x in [] %}{% else %}none{% endfor %}{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}{% for c in 'aü' %}[{{ c }}]{% endfor %}
{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1, [2, [3]]] recursive %}{{ loop.depth }}:{% if x is number %}{{ x }}{% else %}{{ loop(x) }}{% endif %};{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(x=1, y='a') %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}
{% if true %}{% set y = 2 %}{% endif %}{{ y }}{% with z = 3, w = y %}{{ z }}{{ w }}{% set y = 9 %}{% endwith %}{{ y }}{{ z }}
{% macro f(a, b='d', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3, a=4) }}{{ f() }}{{ f.name }}{{ f.arguments }}
{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}
{% macro f(x) %}<{{ caller(x) }}>{% endmacro %}{% call(v) f(5) %}got {{ v }}{% endcall %}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% set x %}a{{ 1 }}b{% endset %}{{ x | upper }}{% set x | upper %}ab{% endset %}{{ x }}{% filter upper %}q{{ x }}{% endfilter %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}
{{ rows | map(attribute='k') | list }} {{ rows | map(attribute='k') | map('upper') | join('+') }} {{ rows | selectattr('v', 'equalto', 1) | list }}
{{ rows | sort(attribute='k') | map(attribute='v') | list }} {{ rows | sum(attribute='v') }} {{ rows | rejectattr('v', 'gt', 1) | map(attribute='k') | first }}
{{ [3, 1, 2] | sort }} {{ [3, 1, 2] | sort(reverse=true) }} {{ ['b', 'A'] | sort }} {{ [1, 2, 1] | unique | list }} {{ [1, 2] | last }} {{ [1, 2] | min }} {{ [1, 2] | max }}
{{ m | dictsort }} {{ m | items | list }} {{ 'abc' | list }} {{ 'abc' | reverse }} {{ [1, 2] | reverse | list }} {{ m | length }} {{ [1, 2, 3] | batch(2) | list }}
{{ 'a.b.c' | replace('.', '-') }} {{ 'a.b.c' | replace('.', '-', 1) }} {{ 'aXa'.replace('a', 'bb') }} {{ 'ab'.replace('', '-') }}
{{ '12' | int }} {{ ' 12 ' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.9 | int }} {{ '3.9' | int }} {{ '1.5' | float }} {{ 'x' | float }} {{ -3 | abs }} {{ 2.5 | round }} {{ 2.567 | round(2) }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ '%s-%d' | format('x', 3) }}|{{ 'a%sb' % 1 }}|{{ '%.2f' % 1.005 }}
{{ '<a>' | e }} {{ ('<a>' | safe) + '<b>' }} {{ '<a>' | safe | upper }} {{ ('<a>' | safe) ~ '<b>' }}
{{ 1 is number }} {{ 1.0 is float }} {{ 1 is integer }} {{ true is integer }} {{ true is boolean }} {{ 's' is string }} {{ m is mapping }} {{ [] is sequence }} {{ m is iterable }} {{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ 1 is eq 1 }} {{ 1 is not none }} {{ 1 is in [1] }} {{ x is sequence }} {{ 'a' is lower }}
{{ range(3) | list }} {{ range(1, 7, 2) | list }} {{ range(3, 0, -1) | list }} {{ range(3) }} {{ range(1, 6, 2) }} {{ dict(a=1, **{'b': 2}) }}
{{ "a" 'b' }} {{ 'a\\b\x41\u00e9\101' }} {{ '\d' }} {{ 0x1f }} {{ 0b11 }} {{ 1_000 }} {{ 1.5e3 }}
{{ 'x'.startswith(('a', 'x')) }} {{ 'abc'.endswith('c') }} {{ 'abc'.find('c') }} {{ 'aüc'.find('c') }} {{ 'abab'.count('ab') }} {{ '-'.join(['a', 'b']) }} {{ 'a1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isalpha() }}
{{ m.get('items') }} {{ m.get('z') }} {{ m.get('z', 5) }} {{ m.keys() | list }} {{ m.values() | list }} {{ m.keys() }} {{ [1, 2].index(2) }} {{ [1, 1].count(1) }}
{% for x in [1, 2, 3] %}{{ x }}{% set y %}a{% if x == 2 %}{% break %}{% endif %}b{% endset %}{{ y }}{% endfor %}|{{ y }}
{% for x in [1, 2, 3] %}{% filter upper %}a{% if x == 2 %}{% continue %}{% endif %}b{{ x }}{% endfilter %}{% endfor %}!
{% for x in [1, 2] %}{% set y | upper %}a{% set z %}{% break %}{% endset %}{% endset %}{% else %}n{% endfor %}
{% for x in [1] %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}
{% for x in [1] %}{% break %}{% else %}n{% endfor %}|{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}n{% endfor %}|{% for x in [1, 2] %}{% continue %}{% else %}n{% endfor %}|{% for x in [1, 2] %}{% if x == 1 %}{% continue %}{% endif %}{% break %}{% else %}n{% endfor %}
{{ 'ab' | center(5) }}|{{ 'ab' | center(4) }}|{{ 'abc' | center(6) }}|{{ 'é' | center(1) }}|{{ 7 | center }}|
{{ 'a b  c_d é-1 ²' | wordcount }} {{ '' | wordcount }} {{ 12 | wordcount }}
{{ 'foo bar baz qux' | truncate(9) }}|{{ 'foo bar baz qux' | truncate(9, true) }}|{{ 'foo bar baz qux' | truncate(11) }}|{{ 'foo bar baz qux' | truncate(11, false, '...', 0) }}|{{ 'foobarbazqux' | truncate(6, end='é', leeway=0) }}
{{ 'abc' | truncate(2) }}
{{ range(7) | slice(3) | list }} {{ range(7) | slice(3, 'x') | list }} {{ [1] | slice(3) | list }} {{ [] | slice(2) | list }}
{{ rows | groupby('v') }}|{% for k, l in [{'a': 'B', 'n': 1}, {'a': 'b', 'n': 2}, {'a': 'A', 'n': 3}] | groupby('a') %}{{ k }}{{ l | length }};{% endfor %}|{% for g in rows | groupby('k', case_sensitive=true) %}{{ g.grouper }}={{ g.list }}{% endfor %}
{{ [{'a': 1}, {}] | groupby('a', default=0) | map('first') | list }}
{{ 'a b/ü&?~-_.' | urlencode }} {{ {'a b': 1, 'c/d': 'é&'} | urlencode }} {{ [('x', 2), ('y', none)] | urlencode }} {{ 5 | urlencode }}
{{ 1 | filesizeformat }} {{ 999 | filesizeformat }} {{ 1000 | filesizeformat }} {{ 1300000 | filesizeformat }} {{ 1024 | filesizeformat(true) }} {{ '2500' | filesizeformat }} {{ 1e30 | filesizeformat }} {{ 0.5 | filesizeformat }} {{ 1e9 | filesizeformat(binary=true) }}
{{ {'class': 'a b', 'id': none, 'x': '<1>'} | xmlattr }}|{{ {'a': 1, 'b': 2} | xmlattr(false) }}|{{ {} | xmlattr }}
{{ ["it's", 'a"b', 'both \'"', 'new\nline', 'é', '\u200b', '\x7f'] }} {{ {'a': none, 'b': (1, 2)} }}
  {% if true %}   
  x
  {%- endif +%}
  y {#- c -#}   z
{%- raw %}{{ x }}{% endraw %}
{% raw -%}   {{ no }} {%- endraw -%}   !
a{%+ if true %} b{% endif %}
{{- 'x' -}}   y{{ '\n' }}
{{ strftime_now('%Y-%m-%d') }}
{% generation %}g{% set q = 1 %}{% endgeneration %}{{ q }}
{{ ''.__class__ }}|{{ m.__class__ }}|{{ x | join(',') }}|{{ x | list }}|{{ x | upper }}|{{ x == y }}|{{ x == none }}
{{ -2 ** 2 }} {{ 2 * 3 ~ 4 }} {{ not 1 == 2 }} {{ 1 if 0 else 2 }} {{ 1 - -1 }} {{ 2 + 3 * 4 }} {{ (2 + 3) * 4 }} {{ 1 in [1] and 2 in [2] }}
{{ m.b[3] is true }} {{ m.b[2] is none }} {{ [[1, 2], [3]] | map('join', '-') | list }} {{ [1, none, 0, 'a'] | select | list }} {{ [1, 'a'] | select('string') | list }} {{ [1, 2] | reject('odd') | list }}
{{ none | map('upper') | list }}{{ 0 | select | list }}{{ '' | reject('odd') | list }}{{ x | selectattr('a') | list }}{{ false | rejectattr('a', 'none') | list }}{{ none | map(attribute='a') | join }}
{% for t in none | selectattr('type', 'equalto', 'function') | map(attribute='function') %}{{ t }}{% else %}none{% endfor %}{{ 'y' if none | map('abs') else 'n' }}
{% set g = [1, 2, 3] | map('string') %}{{ g | first }}{{ g | first }}{{ g | list }}{{ [1, 'a'] | map('abs') | first }}{{ [none, none] | sort }}{{ rows | sort(attribute='v,k') | map(attribute='k') | join }}
{{ 'a\r\nb\nc' | indent(2) }}|{{ 'don\'t [stop] a-b' | title }}|{{ 17 | round(-1) }}{{ 2.5 | round(none) }}{{ 15 | round(-1) }}|{{ 'abcb'.find('b', 2) }}{{ 'abcb'.rfind('b', 0, 3) }}{{ 'abcb'.count('b', 2) }}{{ 'abc'.endswith('', 9) }}
{{ ' a b  c '.split(none, 1) }}{{ ' a  b c '.rsplit(none, 1) }}{{ '²'.isdigit() }}{{ ('<a>' | safe).replace('a', '<') }}{{ ('-' | safe).join(['<', 'b']) }}{{ ('<a>' | safe) | list }}{{ [1, 2, 3] | batch(2, 'x') | list }}{{ 2.5 is odd }}{{ x is callable }}{{ x | truncate(3) }}{{ [2, 1, 2].index(2, 1) }}
{% set j = joiner(', ') %}{% for i in [1, 2] %}{{ j() }}{{ i }}{% endfor %}
""".strip("\n").split("\n")


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(1_700_000_000, tz)


def literal(text):
    out = "".join(c if 0x20 <= ord(c) < 0x7F and c not in '"\\?' else "".join(f"\\{byte:03o}" for byte in c.encode()) for c in text)
    return f'"{out}"'


def main():
    chat_template_utils.datetime = FixedTime
    blocks = ["\n".join(SOURCES[at:at + 4]) for at in range(len(SOURCES) - 4)]
    out = ["// Made by tests/oracle/template_cases.py from jinja2; do not edit.", "// clang-format off"]
    for source in SOURCES + blocks:
        try:
            wanted = chat_template_utils._compile_jinja_template(source).render(**VARIABLES)
        except Exception as error:
            if source in SOURCES and "\n" not in source and not source.strip().startswith(("{% if", "{%- endif")):
                print(f"not kept: {source}: {error}", file=sys.stderr)
            continue
        out.append(f"{{{literal(source)},\n {literal(wanted)}}},")
    text = "\n".join(out + ["// clang-format on", ""])
    if "--check" not in sys.argv:
        CASES.write_text(text)
    elif CASES.read_text() != text:
        sys.exit(f"{CASES} differs from what jinja2 makes; write it anew by this script")


if __name__ == "__main__":
    main()
