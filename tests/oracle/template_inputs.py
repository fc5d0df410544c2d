"""Every filter, test, operator and method of chat templates with odd inputs (none, undefined, 0, "", numbers, lists, dicts, what is called),
and what jinja2 makes of them in transformers' environment, for template_inputs_test.cpp.

    python template_inputs.py FOLDER

Writes FOLDER/inputs.json: {"variables": {...}, "cases": [[source, text or null where jinja2 throws], ...]}. What shows an address, the
name of a Python function, or what jinja2 does to constants alone is left out.
"""

import copy
import json
import pathlib
import re
import sys

from transformers.utils import chat_template_utils

VARIABLES = {"none_": None, "zero": 0, "one": 1, "real_zero": 0.0, "real": 2.5, "empty": "", "abc": "ab c", "twelve": "12", "yes": True, "no": False,
             "tag": "<a>", "m": {"b": 1, "a": [1, None]}, "s": "a-ü C", "l": [3, "b", None], "rows": [{"k": "B", "v": 2}, {"k": "a"}],
             "nums": [2, 1, 2], "texts": ["b", "A", "b"], "e": [], "d": {}}
INPUTS = ["none_", "x", "m.zz", "zero", "one", "(one+6)", "(-one-2)", "real_zero", "real", "empty", "abc", "twelve", "tag", "(tag|safe)", "yes", "no",
          "e", "l", "nums", "texts", "rows", "d", "m", "(()+())", "(1,one+1)", "range(3)", "m.items()", "m.keys()", "(nums|map('abs'))", "namespace(a=1)"]
FILTERS = {
    "abs": [""], "attr": ["('b')", "('zz')", "(1)", "(none)", "(x)", ""],
    "batch": ["(2)", "(2,'-')", "(0)", "(none)", "", "('a')", "(1.5)", "(-1)"], "capitalize": [""], "center": ["", "(4)", "(none)", "('a')"],
    "count": [""], "d": ["", "(1)", "('z',true)", "(none)", "('z',none)", "('z',x)"],
    "default": ["", "(0,true)", "(default_value='q')", "(boolean=true)"],
    "dictsort": ["", "(true)", "(false,'value')", "(by='x')", "(reverse=true)", "(by=none)"], "e": [""], "escape": [""],
    "filesizeformat": ["", "(true)"], "first": [""], "float": ["", "(1)", "(none)", "('q')"], "forceescape": [""],
    "format": ["", "(1)", "('x')", "(none)", "(1,2)"], "groupby": ["('v')", "('k')", "(0)", "('v',default=0)", "(none)", ""],
    "indent": ["", "(2)", "(none)", "('>')", "(2,true)", "(x)"], "int": ["", "(5)", "(none)", "('q')", "(0,16)", "(base=2)"], "items": [""],
    "join": ["", "(',')", "(none)", "(0)", "(',','k')", "(',',attribute='v')", "(x)", "(attribute=0)"], "last": [""], "length": [""], "list": [""],
    "lower": [""], "map": ["('upper')", "(attribute='k')", "(attribute='v',default=0)", "(attribute=0)", "('int')", "", "(none)", "(0)", "('nofilter')",
                           "('default','z')", "(x)", "('length')", "(attribute=none)", "(bad=1)", "('abs')", "('string')", "('list')", "(attribute=x)"],
    "max": ["", "(true)", "(attribute='k')", "(attribute='v')"], "min": ["", "(attribute='v')"],
    "reject": ["", "('odd')", "('none')", "('notest')", "('string')", "('defined')", "(none)", "('eq',2)", "('in',[2])"],
    "rejectattr": ["", "('v')", "('v','none')", "('k','eq','a')", "(none)", "(0)", "('v','notest')", "('v','defined')"],
    "replace": ["('a','b')", "('a')", "('a',1)", "(none,'x')", "('a','b',1)", "('a','b',none)", "('','-')", "(1,2)", "(x,'q')"], "reverse": [""],
    "round": ["", "(1)", "(0,'ceil')", "(0,'floor')", "(0,'x')", "(-1)", "(none)", "('a')", "(1,'floor')", "(method='ceil')", "(true)"], "safe": [""],
    "select": ["", "('odd')", "('none')", "('notest')", "('string')", "('defined')", "(none)", "('eq',2)", "('undefined')", "('mapping')"],
    "selectattr": ["", "('v')", "('v','none')", "('v','defined')", "('k','eq','a')", "(none)", "(0)", "('v','notest')", "('v','undefined')", "(x)"],
    "slice": ["(2)", "(3,'-')", "(0)", "(none)", "", "(-1)", "('a')"],
    "sort": ["", "(true)", "(attribute='k')", "(attribute='v')", "(case_sensitive=true)", "(attribute=0)", "(attribute='k,v')", "(reverse=none)"],
    "string": [""], "sum": ["", "('v')", "(start=1)", "(start='')", "(attribute='v',start=1)", "(start=[])", "(none,none)", "(0)"], "title": [""],
    "tojson": ["", "(indent=1)", "(2)", "(true)", "(indent=none)", "(sort_keys=true)", "(separators=none)", "(separators=(',','='))", "(false,'--')",
               "(indent=0)", "(indent='')", "(indent=-1)", "(indent=true)", "(indent=1.5)"],
    "trim": ["", "('a')", "(none)", "('')", "(1)", "(x)"], "truncate": ["", "(3)", "(2)", "(none)", "(4,true,'')", "(4,leeway=0)", "(3,true,none)"],
    "unique": ["", "(true)", "(attribute='k')", "(attribute='v')", "(none)"], "upper": [""], "urlencode": [""], "wordcount": [""],
    "xmlattr": ["", "(false)"]}
# Of a generator they show what Python calls it.
OF_TEXT = {"capitalize", "center", "e", "escape", "forceescape", "indent", "lower", "replace", "safe", "string", "title", "trim", "truncate", "upper",
           "urlencode", "wordcount"}
GENERATORS = {"batch", "items", "map", "reject", "rejectattr", "select", "selectattr", "slice", "unique", "reverse"}
PLAIN_TESTS = """boolean callable defined escaped even false filter float integer iterable lower mapping none number odd sequence string test true
    undefined upper""".split()
TESTS = "divisibleby eq equalto ge greaterthan gt in le lessthan lt ne sameas".split()
OTHERS = ["none", "0", "''", "'a'", "x", "[]", "m", "[1,2]", "1.0", "true", "('<a>'|safe)", "nums", "{}", "range(3)", "'ab c'", "2", "3", "0.0"]
BEHIND = ["< 1", "<= none", "== none", "!= ''", "+ 1", "+ ''", "+ []", "* 2", "- 1", "/ 2", "// 2", "% 2", "** 2", "~ ''", "and 1", "or 1", "in [none]",
          "in ''", "in m", "not in l", "> x", "== x", "~ x", "+ x", "[0]", "['a']", ".a", "[none]", "[x]", "[1.0]", "[true]", "[-1]"]
BEFORE = ["1 <", "1 +", "'' +", "[] +", "2 *", "'a' *", "[1] *", "none ==", "none in", "1 in", "'a' in", "x ==", "x <", "'%s' %", "'%d' %", "not", "-",
          "+", "'' ~", "2 **", "7 %", "7 //", "none or", "true and"]
AROUND = ["{%% for q in %s %%}[{{ q }}]{%% else %%}E{%% endfor %%}", "{%% for q, r in %s %%}[{{ q }}{{ r }}]{%% else %%}E{%% endfor %%}",
          "{%% if %s %%}Y{%% else %%}N{%% endif %%}", "{%% set q, r = %s %%}{{ q }}", "{{ dict(%s) }}", "{{ dict(a=%s) }}", "{{ range(%s) | list }}",
          "{{ namespace(%s).a }}", "{{ {'a': 1}[%s] }}", "{{ {%s: 1} }}", "{{ [%s] }}", "{{ [%s] | tojson }}", "{{ [%s, 1] | sort }}", "{{ [%s] | sum }}",
          "{{ [%s, 'a'] | join }}", "{{ ''.join(%s) }}"]
METHODS = {
    "text": {"capitalize": ["()"], "count": ["('a')", "('')", "()", "(none)", "(0)", "('a',1)", "('a',1,2)"],
             "endswith": ["('c')", "('')", "(none)", "(('c','x'))", "()", "('c',1)", "(['c'])", "(('c',1))", "('c',none,none)", "('c',0,-1)", "('',99)", "('c',x)"],
             "find": ["('c')", "(none)", "('b',1)", "('b',2)", "('',9)", "('b',-2)", "('a',0,0)", "()"], "index": ["('b')", "('z')", "('b',1)"],
             "isalnum": ["()", "(1)"], "isalpha": ["()"], "isdigit": ["()"], "isspace": ["()"],
             "join": ["(['a','b'])", "([])", "([1])", "(none)", "('xy')", "(m)", "(x)", "(0)", "()", "(['<b>'])"], "lower": ["()", "(1)"],
             "lstrip": ["()", "('a')", "(none)", "(0)", "('')", "(x)"], "removeprefix": ["('a')", "('')", "(none)", "()"],
             "removesuffix": ["('c')", "('')", "(none)"],
             "replace": ["('a','b')", "('a')", "('a','b',1)", "('a','b',none)", "(none,'b')", "('','-')", "('a',0)", "('a','b',-1)", "('a','b',0)", "('a','<')"],
             "rfind": ["('a')", "('a',1)", "('a',0,1)"],
             "rsplit": ["()", "(' ')", "(none)", "(none,1)", "('')", "(' ',1)", "(maxsplit=1)", "(sep=' ')", "(0)", "(' ',none)"],
             "rstrip": ["()", "('c')", "(none)"],
             "split": ["()", "(' ')", "(none)", "(none,1)", "('')", "(' ',0)", "(' ',-1)", "(maxsplit=1)", "(sep='b')", "(0)", "(x)", "(' ',true)", "(' ',1.0)"],
             "splitlines": ["()", "(true)", "(keepends=true)", "(1)", "(none)"],
             "startswith": ["('a')", "('b',1)", "('')", "(none)", "(())", "('a',0,1)", "('a',true)"], "strip": ["()", "('a')", "(none)", "('')"],
             "title": ["()"], "upper": ["()"]},
    "dict": {"get": ["('b')", "('z')", "('z',none)", "('z',0)", "(none)", "(0)", "([])", "()", "(x)", "('b',1,2)", "('z',default=1)", "(key='b')", "({})"],
             "items": ["()", "(1)"], "keys": ["()"], "values": ["()"], "copy": ["()", "(1)"]},
    "list": {"copy": ["()"], "count": ["(2)", "(none)", "(x)", "()", "(2,3)"], "index": ["(2)", "(none)", "(99)", "(2,1)", "(2,0,9)", "()", "(2,0)"]}}
OWNERS = {"text": ["empty", "'abc'", "'a b'", "' a-c '", "'12'", "'Ab\\ncd\\r\\n'", "(tag|safe)", "none_", "x", "zero", "'²'", "'½'", "'ǅ'", "'ⅷ'"],
          "dict": ["{}", "m", "none_", "x", "zero", "{none:1, 0:2, '':3}", "namespace(a=1)"],
          "list": ["[]", "nums", "[none,2]", "(1,2)", "()", "none_", "zero", "range(3)", "(nums|map('abs'))", "m.keys()"]}


def sources():
    for value in INPUTS:
        for name, arguments in FILTERS.items():
            if name in OF_TEXT and "map" in value:
                continue
            for given in arguments:
                if name in GENERATORS:
                    yield "{{ (%s | %s%s) | list }}" % (value, name, given)
                    yield "{{ 'y' if (%s | %s%s) else 'n' }}" % (value, name, given)
                else:
                    yield "{{ %s | %s%s }}" % (value, name, given)
        for name in PLAIN_TESTS:
            yield "{{ %s is %s }}" % (value, name)
            yield "{{ %s is not %s }}" % (value, name)
        for name in TESTS:
            for other in OTHERS + [None]:
                if (name, other) == ("sameas", "0.0"):  # Python makes a new one of it each time
                    continue
                yield "{{ %s is %s%s }}" % (value, name, "" if other is None else f"({other})")
        for other in BEHIND:
            yield "{{ %s%s%s }}" % (value, "" if other[0] in "[." else " ", other)
        for other in BEFORE:
            yield "{{ " + other + " " + value + " }}"
        for around in AROUND:
            yield around % value
    for kind, methods in METHODS.items():
        for owner in OWNERS[kind]:
            for name, arguments in methods.items():
                for given in arguments:
                    yield "{{ %s.%s%s }}" % (owner, name, given)
    # What transformers' users have in their templates.
    yield "{% for t in none_ | selectattr('type', 'equalto', 'function') | map(attribute='function') %}{{ t }}{% else %}none{% endfor %}"
    yield "{{ (x | default(none_)) | selectattr('a') | list | length }}"
    yield "{{ (nums | map('abs')) | first }}{% set g = nums | map('abs') %}{{ g | first }}{{ g | first }}{{ g | list }}"


def rendered(source):
    try:
        return chat_template_utils._compile_jinja_template(source).render(**copy.deepcopy(VARIABLES))
    except Exception:  # whatever it refuses
        return None


def main():
    cases, seen = [], set()
    for source in sources():
        if source in seen:
            continue
        seen.add(source)
        text = rendered(source)
        if text is None or not re.search(r"(?i)0x[0-9a-f]{6}| at 0|generator object|bound method|built-in|<function|<class", text):
            cases.append([source, text])
    (pathlib.Path(sys.argv[1]) / "inputs.json").write_text(json.dumps({"variables": VARIABLES, "cases": cases}))


if __name__ == "__main__":
    main()
