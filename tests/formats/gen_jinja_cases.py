#!/usr/bin/env python3
"""Writes jinja_cases.jsonl: templates of every construct and what the reference renders for them.

The expectations come from Jinja as transformers sets it up (needs `pip install transformers jinja2`):
    python3 gen_jinja_cases.py > jinja_cases.jsonl
One case a line: {"template", "vars"} with "text", or with "error" (the reference's message) and "same" when
our message must hold the reference's.
"""
import json

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

VARS = {
    "s": "Hello World",
    "e": "",
    "u": "héllo wörld ñ 日本語 😀",
    "q": "it's a \"test\" \\ back\n\ttab",
    "html": "<b>'x' & y</b>",
    "pad": "  \t padded \n ",
    "n": 7,
    "z": 0,
    "neg": -5,
    "f": 2.5,
    "big": 1e300,
    "tiny": 1e-7,
    "t": True,
    "no": False,
    "none_": None,
    "xs": [3, 1, 2],
    "strs": ["b", "A", "c", "a", "B"],
    "mixed": [1, "a", None, 2.5, True, [1, 2], {"k": "v"}],
    "nested": [[1, 2], [3], []],
    "d": {"b": 2, "a": 1, "c": {"x": [1, 2, {"y": "deep"}]}, "items": "shadow"},
    "ed": {},
    "el": [],
    "msgs": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
        {"role": "user", "content": "U2"},
    ],
    "people": [
        {"name": "Ann", "age": 30, "city": {"zip": "1"}},
        {"name": "bob", "age": 25, "city": {"zip": "2"}},
        {"name": "Cid", "age": 30, "city": {}},
        {"name": "dan", "city": {"zip": "1"}},
    ],
    "tool": {"type": "function", "function": {"name": "get", "description": "café <b>'x' & y", "default": 1e-7}},
}

# Expressions: each becomes {{ ... }}.
EXPRESSIONS = r"""
1
1.0
-1
1_000
0x1F
0b101
0o17
1e3
1.5e-3
1e16
1e15
123456789012345678.0
0.1
0.1 + 0.2
1e22
1e-5
0.0001
-0.0
1.0e100
1/3
2/1
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
7.5 % -2
0.0 % 3
-0.0 % 3
2 ** 10
2 ** -1
2 ** 0.5
-2 ** 2
2 ** 3 ** 2
0 ** 0
1 / 0
1 // 0
1 % 0
1.0 / 0
0 ** -1
1 + true
true + true
true * 3
n + f
n - neg
n * f
n / 2
"a" + "b"
"a" + 1
1 + "a"
"a" ~ 1 ~ none ~ true ~ 2.5 ~ [1]
"ab" * 3
3 * "ab"
"ab" * -1
"ab" * 0
[1, 2] * 2
[1] + [2]
(1,) + (2, 3)
[1] + (2,)
{} + {}
none + "x"
xs + none_
s - "x"
"a" "b" 'c'
"a\nb\tc\\d\"e\'f"
"\x41\u00e9\U0001F600"
"\101\7"
'\q\é\😀'
"a\
b"
'it''s'
"%s and %d" % ("x", 3)
"%s" % "y"
"%s" % [1, 2]
"%5d|%-5d|%05d|%+d" % (1, 2, 3, 4)
"%.2f %e %g" % (3.14159, 1234.5, 0.00001)
"%x %X %o %%" % (255, 255, 8)
"%r %s" % ("a'b", none)
"%(a)s-%(b)d" % d
"%s %s" % ("x",)
"%s" % ("x", "y")
"%d" % "x"
"%c%c" % ("a", "b")
"%5s|%-5s|%.2s" % ("ab", "cd", "efg")
"%*d" % (5, 42)
"abc" % []
1 == 1.0
1 == true
"a" == "a"
"1" == 1
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{"a": 1, "b": 2} == {"b": 2, "a": 1}
none == none
missing == missing
missing == none
1 != 2
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2
1 < 2 == true
"a" < "b"
"a" < "B"
"é" > "z"
[1, 2] < [1, 3]
[1] < [1, 0]
(1, "a") < (1, "b")
1 < "a"
none < 1
[none] < [none]
missing < 1
{} < {}
1 in [1, 2]
"a" in "abc"
"" in "abc"
1 in "abc"
"a" in d
1 in d
[1] in d
"x" in missing
2 in range(5)
2.0 in range(5)
2.5 in range(5)
7 in range(1, 9, 2)
4 in range(9, 1, -2)
"a" in d.keys()
1 in d.values()
("a", 1) in d.items()
1 in 5
3 not in [1, 2]
not 3 in [1, 2]
not true
not not "x"
not e
t and "yes"
no and missing.x
no or "else"
e or el or "last"
t or missing.x
1 and 2 or 3
0 and 2 or 3
"a" if t
"a" if no
"a" if no else "b"
"a" if no else "b" if no else "c"
("a" if no) is defined
1 if 2 if 3 else 4 else 5
-n
+n
- -n
-t
-"a"
-none_
-missing
n|abs
neg|abs
-5|abs
(-5)|abs
-n.real
s.upper()
s["upper"]()
s.x
s.x.y
none_.x
none_.x.y
none_["x"]
n.x
n[0]
missing
missing.x
missing["x"]
missing()
missing[1:]
missing + 1
1 + missing
missing * 2
missing ~ "x"
"x" + missing
missing|length
missing|list
missing|default("d")
missing.x|default("d")
e|default("d")
e|default("d", true)
none_|default("d")
none_|default("d", boolean=true)
no|d("x", true)
d.a
d["a"]
d.zzz
d["zzz"]
d.items
d["items"]
d.get("a")
d.get("zzz")
d.get("zzz", 5)
d.get("zzz", default=5)
d.keys()
d.values()
d.items()
d.items()|list
d.keys()|list|length
d.c.x[2].y
d["c"]["x"][-1]["y"]
d[1]
d[[1]]
d|length
ed
el
()
(1,)
(1, 2)
1, 2
[]
[1, "a", none, true, 2.0]
{"a": [1, {"b": (1,)}], 1: 2, none: 3, true: 4, 2.5: 5}
{"a": 1, "a": 2}
{[1]: 2}
{(1, 2): 3}
xs[0]
xs[-1]
xs[5]
xs[-5]
xs["a"]
xs[true]
xs[1.0]
xs.0
xs.1
xs[0:2]
xs[:2]
xs[1:]
xs[::-1]
xs[::2]
xs[-2:]
xs[:-1]
xs[5:]
xs[2:0:-1]
xs[::0]
xs["a":]
xs[none:none]
xs[1:2, 3]
s[0]
s[-1]
s[100]
s[0:5]
s[::-1]
s[::3]
s[-5:-2]
u[1]
u[0:5]
u[::-1]
u[-1]
u|length
u|upper
u|reverse
(1, 2, 3)[1:]
range(5)[1:3]
range(5)[2]
range(10)[-1]
range(5)
range(1, 10, 3)
range(5)|list
range(5, 0, -2)|list
range(3, 3)|list
range(0)|list
range(5, 1)|list
range(100001)
range(1, 2, 0)
range("a")
range(2.0)
range(5).start, range(5).stop, range(5).step
range(0, 10, 3)|length
d[1:2]
none_[1:]
mixed
nested
msgs
u ~ q
[u, q]
["a'b", 'a"b', "a'b\"c"]
["\x00\x1f\x7f\x80\xa0\u200b\u2028\ufeff😀\u0378"]
["tab\tnl\ncr\rbs\\"]
[1.0, 1e16, 1e-5, 123456.789, 1e22]
t, no, none_
1 is odd
2 is even
2.5 is odd
"a" is odd
4 is divisibleby 2
4 is divisibleby(3)
4 is divisibleby 0
s is defined
missing is defined
missing is undefined
none_ is none
missing is none
n is number
t is number
f is float
n is integer
t is integer
t is boolean
n is boolean
t is true
1 is true
no is false
0 is false
s is string
n is string
d is mapping
xs is mapping
xs is sequence
s is sequence
d is sequence
n is sequence
missing is sequence
d.items() is sequence
xs is iterable
n is iterable
missing is iterable
d.items() is iterable
(xs|map("string")) is iterable
(xs|map("string")) is sequence
range is callable
s is callable
s.upper is callable
missing is callable
"abc" is lower
"aBc" is lower
"123" is lower
"ABC" is upper
5 is upper
1 is eq 1
1 is eq(2)
1 is equalto 1
1 is == 1
1 is ne 2
1 is lt 2
1 is lessthan(2)
1 is le 1
2 is gt 1
2 is greaterthan 1
2 is ge 2
"a" is in ["a", "b"]
"a" is in "abc"
"z" is not in "abc"
1 is sameas 1
true is sameas true
1 is sameas true
none is sameas none
[] is sameas []
s is not none
s is not defined or true
not s is none
1 is odd and 2 is even
"upper" is filter
"nope" is filter
"odd" is test
html is escaped
(html|safe) is escaped
missing is not defined and true
x is defined if false else "b"
5 is nosuchtest
5|nosuchfilter
s is string is string
n is divisibleby missing
s|upper
s|lower
s|capitalize
"hELLO wORLD"|capitalize
"hello world-foo (bar) [baz] {qux} <z> it's"|title
u|title
"hello it's"|title
"ǆ ß ﬁ"|upper
"ǆ ß ﬁ İ"|lower
"ΑΣ ΑΣΑ Σ"|lower
"ǆ ß"|capitalize
"ǆ ßa"|title
n|upper
none_|upper
pad|trim
pad|trim("x")
"xxaxx"|trim("x")
"xyzaxzy"|trim(chars="xyz")
5|trim
s|replace("o", "0")
s|replace("o", "0", 1)
s|replace("", "-")
"aaa"|replace("a", "b", count=2)
5|replace(5, 6)
s|length
xs|length
n|length
none_|length
(xs|map("string"))|length
d|count
xs|first
el|first
s|first
missing|first
n|first
xs|last
el|last
s|last
d|last
missing|last
(xs|map("string"))|last
range(3)|last
s|reverse
xs|reverse|list
xs|reverse|length
d|reverse|list
(1, 2)|reverse|join
n|reverse
xs|join
xs|join(", ")
xs|join(5)
mixed|join("|")
people|join(", ", attribute="name")
people|join(", ", "age")
s|join("-")
el|join("x")
missing|join("x")
n|join
["<", html|safe]|join("&")
xs|sort
xs|sort(reverse=true)
xs|sort(true)
strs|sort
strs|sort(case_sensitive=true)
mixed|sort
people|sort(attribute="name")|map(attribute="name")|list
people|sort(attribute="age")
people[:3]|sort(attribute="age,name")|map(attribute="name")|list
people|sort(attribute="city.zip")
[none, none]|sort
[1.5, 1, true, 0.5]|sort
[[2, 1], [1, 2]]|sort
"hello"|sort
d|sort
xs|min
xs|max
strs|min
strs|max
strs|max(case_sensitive=true)
people[:3]|max(attribute="age")
people[:3]|min(attribute="age")
el|min
[1, "a"]|max
xs|sum
[0.1, 0.2, 0.3]|sum
people[:3]|sum(attribute="age")
xs|sum(start=10)
nested|sum(start=[])
["a"]|sum
["a", "b"]|sum(start="")
el|sum
strs|unique|list
strs|unique(case_sensitive=true)|list
[1, 1.0, true, 2]|unique|list
people|unique(attribute="age")|map(attribute="name")|list
nested|unique|list
xs|list
s|list
d|list
n|list
(1, 2)|list
"42"|int
"42.9"|int
" -7 "|int
"x"|int
"x"|int(5)
"x"|int(default=none)
"0x1f"|int(base=16)
"1f"|int(0, 16)
"101"|int(base=2)
"1_000"|int
"1__0"|int
"12a"|int
2.9|int
-2.9|int
true|int
none_|int
missing|int
el|int
"inf"|int
"nan"|int(3)
"1e3"|int
"2.5"|float
"x"|float
"x"|float(1.5)
5|float
none_|float
" 1e3 "|float
"inf"|float
"-nan"|float
"1_0.5"|float
"0x10"|float
missing|float
2.5|round
3.5|round
-2.5|round
2.567|round(2)
2.675|round(2)
1234.5|round(-2)
1250|round(-2)
1350|round(-2)
42|round
42.4|round(0, "ceil")
42.6|round(method="floor")
42.123|round(1, "ceil")
42|round(1, "ceil")
"x"|round
2.5|round(1, "bad")
42.55|round|int
s|string
n|string
none_|string
[1]|string
html|e
html|escape
html|e|e
html|safe
html|safe|e
html|safe|forceescape
(html|safe) + "<"
"<" + (html|safe)
(html|safe) ~ "<"
(html|safe) * 2
[html|safe]
html|safe|upper
html|safe|replace("b", "<i>")
(html|safe).replace("b", "<i>")
"%s <b>"|format("x")
"%s %s"|format("a", 1)
"%(x)s"|format(x=5)
"%s"|format("a", x=1)
s|truncate(5)
s|truncate(8, true)
s|truncate(8, leeway=0)
s|truncate(8, end="…", leeway=0)
s|truncate(2, leeway=0)
u|truncate(10, true, "", 0)
n|truncate
"a b  c"|wordcount
u|wordcount
"a\nb\n\nc"|indent
"a\nb\n\nc"|indent(2)
"a\nb\n\nc"|indent(2, true)
"a\nb\n\nc"|indent(2, first=true, blank=true)
"a\nb"|indent("> ")
"a\nb\n"|indent
"a\n\n"|indent(2, blank=true)
"\n"|indent(2)
""|indent(2)
""|indent(2, true)
"a\r\nb\x0bc\u2028d"|indent(1)
n|indent
missing|indent
s|center(21) ~ "|"
"ab"|center(5) ~ "|"
"abc"|center(6) ~ "|"
"a b&c=d/é?"|urlencode
{"a": 1, "b c": "x&y"}|urlencode
[("a", 1), ("b", "é")]|urlencode
5|urlencode
tool|tojson
tool.function|tojson
tool|tojson(indent=2)
tool|tojson(indent=4, sort_keys=true)
tool|tojson(ensure_ascii=true)
tool|tojson(true)
mixed|tojson
mixed|tojson(separators=(",", ":"))
mixed|tojson(indent=2, separators=(", ", " = "))
mixed|tojson(indent="--")
mixed|tojson(indent=0)
mixed|tojson(indent=none)
el|tojson(indent=2)
ed|tojson(indent=2)
[el, ed]|tojson(indent=2)
q|tojson
u|tojson
u|tojson(ensure_ascii=true)
"\x00\x1f\x7f/\u2028"|tojson
none_|tojson
t|tojson
f|tojson
big|tojson
tiny|tojson
[1.0, 1e16, 1e22, -0.0]|tojson
(1, 2)|tojson
{1: 2, none: 3, true: 4, 2.5: 5}|tojson
{(1,): 2}|tojson
missing|tojson
[missing]|tojson
range(3)|tojson
xs|map("string")|tojson
d.keys()|tojson
html|safe|tojson
html|tojson|safe
d|items|list
d|items
none_|items|list
missing|items|list
d|dictsort
{"b": 1, "A": 2, "c": 0}|dictsort
{"b": 1, "A": 2, "c": 0}|dictsort(true)
{"b": 1, "A": 2, "c": 0}|dictsort(by="value")
{"b": 1, "A": 2, "c": 0}|dictsort(reverse=true)
{"b": 1, "A": 2}|dictsort(by="x")
xs|dictsort
xs|map("string")|list
strs|map("upper")|join
strs|map("replace", "a", "z")|list
people|map(attribute="name")|list
people|map(attribute="age")|list
people|map(attribute="age", default=0)|list
people|map(attribute="city.zip", default="?")|list
nested|map(attribute=0)|list
nested|map("first")|list
nested|map("length")|sum
xs|map
xs|map("nosuch")|list
xs|map(attribute="a", x=1)|list
el|map("nosuch")|list
none_|map("upper")|list
5|map("upper")|list
xs|select|list
[0, 1, "", "a", none, [], [0]]|select|list
[0, 1, "", "a", none, [], [0]]|reject|list
xs|select("odd")|list
xs|reject("odd")|list
xs|select("gt", 1)|list
xs|select(">", 1)|list
strs|select("in", ["a", "b"])|list
mixed|select("string")|list
mixed|select("none")|list
mixed|select("number")|list
xs|select("nosuch")|list
msgs|selectattr("role", "equalto", "user")|list|length
msgs|selectattr("role", "==", "user")|map(attribute="content")|join(",")
msgs|selectattr("tool_calls")|list|length
msgs|selectattr("tool_calls", "defined")|map(attribute="content")|list
msgs|rejectattr("role", "eq", "user")|map(attribute="content")|list
msgs|rejectattr("tool_calls")|map(attribute="role")|list
msgs|selectattr("role", "in", ["system", "user"])|map(attribute="content")|list
msgs|selectattr|list
msgs|selectattr("nosuch.x")|list
people|groupby("age")|length
people[:3]|groupby("age")
people[:3]|groupby("age")|map("first")|list
people[:3]|groupby(attribute="age")|map(attribute="grouper")|list
people|groupby("age", default=0)|map(attribute="grouper")|list
strs|groupby(0)
xs|batch(2)|list
xs|batch(2, "-")|list
xs|batch(0)|list
range(7)|slice(3)|list
range(7)|slice(3, "x")|list
range(7)|slice(0)|list
d|attr("a")
s|attr("upper")
d|attr("items")
xs|attr("append")
xs.append
xs.append(1)
d.update({})
d.pop("a")
xs.copy()
d.copy() == d
s.__class__
s.__class__.x
xs.index(1)
xs.index(9)
xs.count(3)
(1, 2, 1).count(1)
(1, 2, 1).index(2)
(xs|map("string"))|first
s.split()
s.split("o")
s.split("o", 1)
s.split(sep="o", maxsplit=1)
s.split(none, 1)
"  a  b c ".split()
"  a  b c ".split(" ")
"  a  b c ".split(none, 1)
"  a  b c ".rsplit(none, 1)
"  a  b c ".rsplit()
"a,b,c".rsplit(",", 1)
"a,b,c".rsplit(",")
"".split()
"".split(",")
"a".split("")
s.split(5)
"a\nb\r\nc\rd\x0be".splitlines()
"a\nb\n".splitlines(true)
"a\n\nb".splitlines()
pad.strip() ~ "|"
pad.lstrip() ~ "|"
pad.rstrip() ~ "|"
"xxaxx".strip("x")
"xyaxy".lstrip("xy")
"xyaxy".rstrip("yx")
"a".strip(5)
"\u00a0\u3000a\u2003".strip()
s.startswith("He")
s.startswith(("x", "H"))
s.startswith("e", 1)
s.startswith("W", 6, 7)
s.startswith("")
s.startswith("", 20)
s.startswith(["H"])
s.startswith(5)
s.endswith("ld")
s.endswith(("x", "ld"))
s.endswith("W", 0, 7)
s.find("o")
s.find("o", 5)
s.find("o", -4)
s.find("zz")
s.find("")
s.rfind("o")
s.rfind("zz")
s.rfind("")
u.find("日")
s.index("W")
s.index("zz")
s.rindex("o")
s.count("o")
s.count("")
"aaaa".count("aa")
s.count("o", 5)
s.replace("o", "0")
s.replace("o", "0", 1)
s.replace("l", "")
"abc".replace("", "-")
"abc".replace("", "-", 2)
s.replace("o")
",".join(["a", "b"])
",".join("abc")
",".join([1])
",".join([])
s.upper().lower().title().capitalize()
"hello it's".title()
s.swapcase()
"ab".center(5) ~ "|"
"abc".center(6, "*")
"ab".ljust(5, ".")
"ab".rjust(5)
"ab".rjust(5, "xx")
"42".zfill(5)
"-42".zfill(5)
"a-b-c".partition("-")
"abc".partition("-")
"a-b-c".rpartition("-")
"abc".rpartition("-")
"TestHook".removeprefix("Test")
"MiscTests".removesuffix("Tests")
"abc".isalpha()
"ab1".isalnum()
"123".isdigit()
"١٢".isdigit()
"²".isdecimal()
"½".isnumeric()
"".isalpha()
" \t".isspace()
"abc".islower()
"ABC".isupper()
"aé".isascii()
"{} and {}".format("a", 1)
"{0} {1} {0}".format("a", "b")
"{x} {y}".format(x=1, y="z")
"{:>5}|{:<5}|{:^5}|{:*^7}".format("a", "b", "c", "d")
"{:05d} {:+d} {:x} {:#x} {:b} {:,}".format(42, 5, 255, 255, 5, 1234567)
"{:.2f} {:e} {:10.3f}|{:<8.1f}|{:%}".format(3.14159, 1234.5, 2.5, 1.25, 0.5)
"{!r} {!s}".format("a", "b")
"{a[0]} {a[1]}".format(a=[1, 2])
"{d[a]} {d.a}".format(d=d)
"{{}} {}".format(1)
"{} {}".format(1)
"{".format(1)
"}".format(1)
"{:d}".format("x")
"{x}".format(y=1)
"{:.3}".format("abcdef")
"{}".format(none)
2.0.is_integer()
2.5.is_integer()
dict(a=1, b=2)
dict([("a", 1), ("b", 2)])
dict({"a": 1}, b=2)
dict(d, a=9).a
dict([1])
dict(1)
dict(1, 2)
namespace(a=1)
namespace(a=1).a
namespace({"a": 1}, b=2).b
namespace(a=1)["a"]
namespace().x
namespace(_a=1)
namespace(a=1) is mapping
cycler(1, 2).next()
cycler()
joiner()()
joiner("x")
raise_exception("boom " ~ n)
raise_exception(none)
raise_exception()
lipsum is callable
strftime_now("%%") 
strftime_now(5)
range
s.upper
"a" ~ (1 if no) ~ "b"
[1, 2, 3,]
{"a": 1,}
f(1)
s(1)
s.upper(1)
d.get()
d.get(1, 2, 3)
s|upper(1)
s|replace("a")
s|default(1, 2, 3)
s|trim(chrs="x")
s|replace(old="o", new="x")
s|replace("o", old="x")
xs|join(d=", ")
(xs)|join(*["-"])
"%s-%s"|format(*[1, 2])
dict(**{"a": 1})
dict(**{"a": 1}, **{"b": 1})
dict(a=1, **{"a": 2})
dict(*[[("a", 1)]])
loop
caller
1.real
true.real
"caf\u00e9" == "café"
9223372036854775807
-9223372036854775807 - 1
"unterminated
'a' in 'b' in ['b']
1 + 2 * 3 - 4 / 2
(1 + 2) * 3
2 * 3 % 4
10 - 3 - 2
100 // 7 // 2
1 ~ 2 + 3
1 + 2 ~ 3
"a" ~ "b" * 2
not 1 == 2
not (1 == 2)
1 if 1 == 2 else 3 if 4 > 3 else 5
xs|length > 2
xs|length + 1
-xs|length
"a" is string and "b"|upper == "B"
[x for x in xs]
lambda: 1
a.b.c
a["b"].c
a = 1
1 +
* 2
(1
1)
[1
{1: 2
{"a" 1}
s.
s|
s|(x)
s is
f(a=1, 2)
f(**a, 1)
f(*a, *b)
f(a=1, a=2)
@
$
`
1;2
x:y
s.1.2
1.2.3
xs.0.1
s[0][0][0]
""" 

TEMPLATES = [
    # text, trimming
    "", "\n", "\n\n", "a", "a\n", "a\n\n", "a\r\nb\rc\n", "{{ 1 }}\n", "{{ 1 }}\n\n", "{% if t %}\na\n{% endif %}\nb",
    "  {% if t %}\n  a\n  {% endif %}\n  b\n", "x {% if t %} a {% endif %} y", "  {{ 1 }}  \n  {{ 2 }}",
    "  {%- if t -%}  a  {%- endif -%}  b", "a  {{- 1 -}}  b", "a \n {{- 1 -}} \n b", "  {%+ if t %}a{% endif %}",
    "{% if t +%}\na{% endif %}", "{% if t %}\n\na{% endif %}", "a {#- c -#} b", "a\n  {# c #}\nb", "a {# c #} b",
    "a\n  {#+ c #}\nb", "{# c +#}\nb", "{# {{ nope }} {% bad %} #}x", "{#-#}x", "{#--#}x", "a{##}b", "{# unclosed",
    "{% raw %}{{ x }}{% endraw %}", "{% raw %}\n{{ x }}\n{% endraw %}\nb", "a {%- raw -%} {{ x }} {%- endraw -%} b",
    "  {% raw %}  x  {% endraw %}  y", "\n  {% raw %}\n  x\n  {% endraw %}\ny", "{% raw %}{% endraw %}", "{% raw %}{% raw %}{% endraw %}",
    "{%raw%}a{%endraw%}", "{% raw %}x", "{% raw x %}y{% endraw %}", "{% rawx %}", "a{% raw +%}b{% endraw %}",
    "{{ '}}' }}", "{{ '{{' }}", "{{ {'a': {'b': 1}}.a.b }}", "{{ {'a':{}} }}", "{{'a'}}{{'b'}}", "{{-1}}", "{{+1}}", "a {{-1}}", "{{ -1 }}",
    "{", "{ {", "}}", "%}", "#}", "{{", "{{ 1", "{%", "{% if", "{{ }}", "{%%}", "{% %}", "{{ 1 }", "{{ 1 %}", "{% if t }}x{% endif %}",
    "\t{% set x = 1 %}\t{{ x }}", " \x0b{% set x = 1 %}y", "\u00a0{% set x = 1 %}y", "a\u3000{%- set x = 1 -%}\u2003b",
    "{% set x = 1 %}\r\n{{ x }}\r\n", "{% if t -%}\n\n\n  a\n\n{%- endif %}", "{%\n if\n t\n %}a{%\n endif\n %}",
    # if
    "{% if no %}a{% elif z %}b{% elif n %}c{% else %}d{% endif %}", "{% if no %}a{% else %}d{% endif %}", "{% if missing %}a{% endif %}x",
    "{% if t: %}a{% endif %}", "{% if t %}a", "{% if t %}{% endfor %}", "{% endif %}", "{% else %}", "{% if %}a{% endif %}",
    "{% if 1, 2 %}a{% endif %}", "{% if () %}a{% else %}b{% endif %}", "{% if t %}a{% else %}b{% else %}c{% endif %}",
    "{% if no %}{{ 1|nosuch }}{% endif %}ok", "{% if t %}{{ 1|nosuch }}{% endif %}", "{% if no %}{{ 1 is nosuch }}{% endif %}ok",
    "{% if no %}{% for x in xs %}{{ x|nosuch }}{% endfor %}{% endif %}", "{{ (1|nosuch) if no else 2 }}", "{% for x in el %}{{ x|nosuch }}{% endfor %}",
    "{% if no %}{% set q = 1|nosuch %}{% endif %}ok", "{% if no %}{% macro m() %}{{ 1|nosuch }}{% endmacro %}{% endif %}",
    # for
    "{% for x in xs %}{{ x }}{% endfor %}", "{% for x in xs %}{{ x }}{% else %}none{% endfor %}", "{% for x in el %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in missing %}{{ x }}{% else %}none{% endfor %}", "{% for x in none_ %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for x in 'abc' %}{{ x }},{% endfor %}", "{% for x in u %}{{ x }}.{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|items %}{{ k }}{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}{% endfor %}",
    "{% for a, b in nested %}{{ a }}{% endfor %}", "{% for a in nested %}{{ a }}{% endfor %}", "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }} {% endfor %}",
    "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }};{% endfor %}", "{% for x in xs if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in xs if loop.first %}{% endfor %}", "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in xs %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }}|{% endfor %}", "{% for x in xs %}{{ loop }}{% endfor %}",
    "{% for x in xs %}{% set y = x %}{% endfor %}{{ y }}", "{% set y = 0 %}{% for x in xs %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}",
    "{% set ns = namespace(t=0) %}{% for x in xs %}{% set ns.t = ns.t + x %}{% endfor %}{{ ns.t }}", "{% for x in xs %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 9 %}{% for x in xs %}{{ x }}{% endfor %}{{ x }}", "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in xs %}{% break %}{% else %}E{% endfor %}", "{% for x in xs %}{% continue %}{% else %}E{% endfor %}",
    "{% for x in xs %}a{% for y in xs %}{% break %}{% endfor %}b{% endfor %}", "{% break %}", "{% continue %}", "{% for x in xs %}{% else %}{% break %}{% endfor %}",
    "{% for y in xs %}{% for x in el %}{% else %}{% break %}{% endfor %}z{% endfor %}", "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in xs %}{% set q %}{{ x }}{% break %}{% endset %}{% endfor %}done", "{% for x in xs %}{% filter upper %}a{{ x }}{% if x == 1 %}{% continue %}{% endif %}{% endfilter %}{% endfor %}",
    "{% for x in xs %}{% if x == 2 %}{{ loop.last }}{% endif %}{% endfor %}", "{% for x in xs|map('string') %}{{ loop.length }}{{ loop.index }}{{ x }};{% endfor %}",
    "{% for x in xs|select('odd') %}{{ loop.last }}{{ loop.length }}{% endfor %}", "{% for x in xs if x is odd %}{{ loop.length }}{{ loop.revindex }}{% endfor %}",
    "{% for loop in xs %}{% endfor %}", "{% for x in xs %}{% set loop = 1 %}{% endfor %}", "{% set loop = 1 %}{{ loop }}",
    "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for i in range(xs|length - 1, -1, -1) %}{{ xs[i] }}{% endfor %}", "{% for m in msgs[::-1] %}{{ m.role[0] }}{% endfor %}",
    "{% for m in msgs|reverse %}{{ m.role[0] }}{% endfor %}", "{% for x in nested recursive %}[{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}]{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{{ loop.depth }}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}", "{% for x in xs %}{{ loop(xs) }}{% endfor %}",
    "{% for x in xs: %}{{ x }}{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in (1, 2) if x == 2 %}{{ x }}{% endfor %}", "{% for x in xs if t else xs %}{% endfor %}",
    "{% for x.y in xs %}{% endfor %}", "{% for 1 in xs %}{% endfor %}", "{% for x of xs %}{% endfor %}", "{% for in xs %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for x in xs %}",
    "{% set ns = namespace(v=0) %}{% for x in [1, 2, 3, 4] if x > ns.v %}{{ x }}{% set ns.v = x + 1 %}{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] if a > 1 %}{{ loop.previtem }}{{ a }}{{ b }}{% endfor %}", "{% for a, b in ['ab', 'cd'] if a %}{{ loop.nextitem }}{{ a }}{% endfor %}",
    "{% set g = xs|select('odd') %}{{ g|list }}{{ g|list }}", "{% set g = xs|map('string') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% endfor %}", "{% if el|select %}yes{% endif %}",
    "{% set g = d.items() %}{{ g|list|length }}{{ g|list|length }}", "{{ xs|reverse|list }}{% set r = xs|reverse %}{{ r|list }}{{ r|list }}", "{{ 2 in (xs|select('even')) }}",
    "{% set g = [1, 'a']|map('abs') %}{{ g|first }}", "{% set g = [1, 'a']|map('abs') %}{{ g|list }}", "{% set g = 5|items %}x", "{% for g in people[:3]|groupby('age') %}{{ g.grouper }}:{{ g.list|length }}{% endfor %}",
    "{% for age, group in people[:3]|groupby('age') %}{{ age }}:{{ group|map(attribute='name')|join(',') }};{% endfor %}",
    # set
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set x, y = xs %}", "{% set x = 1, 2 %}{{ x }}", "{% set (a, b) = (1, 2) %}{{ b }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x|length }}",
    "{% set x | upper %}a{{ n }}b{% endset %}{{ x }}", "{% set x | upper | replace('A', 'z') %}a{% endset %}{{ x }}", "{% set x %}{% set y = 5 %}{{ y }}{% endset %}{{ x }}{{ y }}", "{% if t %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% set x = x %}{{ x }}", "{% set x = 1 %}{% set x = x + 1 %}{{ x }}", "{% set n = n + 1 %}{{ n }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace(a=1) %}{% set ns.a, ns.b = 2, 3 %}{{ ns.a }}{{ ns.b }}",
    "{% set d.a = 1 %}", "{% set s.a = 1 %}", "{% set missing.a = 1 %}", "{% set ns = namespace() %}{% set ns._a = 1 %}", "{% set ns = namespace() %}{% set ns.x %}hi{% endset %}{{ ns.x }}", "{% set ns = namespace(a=1) %}{{ ns }}", "{% set ns = namespace() %}{% set ns.a.b = 1 %}",
    "{% set 1 = 2 %}", "{% set x %}", "{% set x = %}", "{% set x == 1 %}", "{% set none = 1 %}", "{% set x[0] = 1 %}", "{% set messages = xs %}{{ messages }}", "{% for i in [1, 2] %}{{ s }}{% set s = i %}{{ s }}{% endfor %}{{ s }}",
    # macro, call, filter block, with, generation
    "{% macro m() %}x{% endmacro %}{{ m() }}", "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m(a=5) }}", "{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}", "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}hi{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}-{{ b }}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}hi{% endcall %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a) %}{% endmacro %}",
    "{% macro m() %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m() %}x{% endmacro %}{{ m }}{{ m.name }}", "{% macro m(x) -%}  {{ x }}  {%- endmacro %}[{{ m(1) }}]",
    "{% for x in xs %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(d) %}{% for k, v in d.items() %}{{ k }}{% if v is mapping %}({{ m(v) }}){% endif %}{% endfor %}{% endmacro %}{{ m({'a': {'b': {'c': 1}}}) }}",
    "{% macro m(a) %}{{ loop.index }}{% endmacro %}{% for x in xs %}{{ m(x) }}{% endfor %}", "{% for x in xs %}{% macro m() %}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}", "{{ (m() if no) }}{% macro m() %}{% endmacro %}", "{% call xs.index(1) %}{% endcall %}", "{% call x %}{% endcall %}", "{% call s.upper() %}{% endcall %}",
    "{% macro m(caller) %}{{ caller() }}{% endmacro %}", "{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ [1, 2]|map('string')|map('upper')|join }}{{ m(x=m(x='q')) }}", "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner }}",
    "{% filter upper %}a{{ n }}b{% endfilter %}", "{% filter upper|replace('A', 'z') %}a{% endfilter %}", "{% filter trim %}  x  {% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q }}", "{% filter nosuch %}{% endfilter %}", "{% filter %}x{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a }}", "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}", "{% with a %}{% endwith %}",
    "{% generation %}x{{ n }}{% endgeneration %}", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}", "{% for x in xs %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% for x in xs %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{%- generation -%} x {%- endgeneration -%}",
    # what a name means is decided by the whole scope
    "{% macro m() %}[{{ s }}]{% endmacro %}{{ m() }}{% set s = 1 %}{{ m() }}", "{% for x in [1] %}[{{ s }}]{% endfor %}{% set s = 1 %}", "{% set s %}[{{ s }}]{% endset %}{{ s }}", "{{ s }}{% set s %}[{{ s }}]{% endset %}{{ s }}",
    "{% if t %}{% set s = 1 %}{% endif %}{% for x in [1] %}{{ s }}{% endfor %}", "{% macro m() %}[{{ s }}]{% endmacro %}{{ m() }}{% if t %}{% set s = 1 %}{% endif %}{{ m() }}", "{% for x in [1, 2] %}{% set s %}[{{ s }}]{% endset %}{{ s }}{% endfor %}{{ s }}",
    "{% macro m() %}[{{ range is defined }}]{% endmacro %}{{ m() }}{% set range = 1 %}{{ m() }}", "{% macro m() %}{{ f is defined }}{% endmacro %}{{ m() }}{% macro f() %}{% endmacro %}{{ m() }}", "{% set ns = namespace(a=s) %}{% set s = 2 %}{{ ns.a }}{{ s }}", "{% with s = s %}{{ s }}{% set s = 1 %}{{ s }}{% endwith %}{{ s }}",
    "{% filter upper %}{{ s }}{% set s = 1 %}{{ s }}{% endfilter %}{{ s }}", "{% filter upper %}{% set e %}{{ s }}{% endset %}{% set s = e %}{{ s }}{% endfilter %}{{ s }}", "{% macro m(a=s) %}{{ a }}{% set s = 1 %}{{ s }}{% endmacro %}{{ m() }}{{ s }}", "{% macro m() %}{% set q %}{{ s }}{% endset %}{% set s = 1 %}{{ q }}{{ s }}{% endmacro %}{{ m() }}{{ s }}",
    "{% call(x) s.upper() %}{% endcall %}", "{% filter length %}abc{% endfilter %}", "{% filter list %}abc{% endfilter %}", "{% filter default('x') %}abc{% endfilter %}", "{% set q | length %}abc{% endset %}{{ q + 1 }}",
    # unknown, unsupported
    "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% nosuch %}", "{% do 1 %}", "{% endmacro %}", "{% elif x %}", "{% trans %}", "{% 1 %}", "{% set %}", "{% for %}", "{% macro %}", "{% call %}", "{% macro 1() %}{% endmacro %}",
    # things of real templates
    "{% for m in msgs %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}", "{{ msgs[-1].role }}{{ msgs[0]['content'] }}{{ msgs|length }}", "{%- if msgs[0]['role'] == 'system' %}{% set loop_msgs = msgs[1:] %}{% set sys = msgs[0]['content'] %}{% endif %}{{ sys }}{{ loop_msgs|length }}",
    "{% for m in msgs %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}", "{% if 'tools' in msgs[0] and msgs[0]['tools'] is not none %}a{% else %}b{% endif %}", "{% for tc in msgs[2].tool_calls %}{{ tc.function.name }}{{ tc.function.arguments|tojson }}{% endfor %}",
    "{{- '' }}\n{%- set x = 1 %}\n{{- x }}", "{% set content = 'a</think>b' %}{{ content.split('</think>')[-1].lstrip('\n') }}", "{{ '<think>' + (none_ or '') }}", "{{ msgs|map(attribute='content')|join('\n') }}", "{{ bos_token }}x{{ eos_token|default('E') }}",
    "{% set ns = namespace(is_first=false, last='') %}{% for m in msgs %}{% if not ns.is_first %}{% set ns.is_first = true %}F{% endif %}{% set ns.last = m.role %}{% endfor %}{{ ns.last }}", "{% set date = date_string if date_string is defined else '26 Jul 2024' %}{{ date }}",
    "{{ msgs[2].tool_calls[0].function | tojson(indent=4) }}", "{% if msgs[0].content is string %}s{% else %}l{% endif %}", "{%- for p in ['a', 'b'] -%}{{ p }}{%- if not loop.last %}, {% endif -%}{%- endfor -%}", "{{ ('a' if t else 'b') + ('c' if no else '') }}", "{{ 'yes' if msgs|selectattr('role', 'equalto', 'tool')|list|length > 0 else 'no' }}",
    "{{ d.items()|list|tojson }}", "{% set x = {'a': 1} %}{% set x = dict(x, b=2) %}{{ x|tojson }}", "{% set l = [] %}{% set l = l + [1] %}{% set l = l + [2] %}{{ l }}", "{% set _ = d.update({'z': 1}) %}", "{{ xs.append(4) }}", "{{ d.pop('a') }}", "{{ d.setdefault('q', 1) }}", "{{ xs.sort() }}",
    "line1\n{{ missing.x }}", "line1\n\n{% for x in xs %}\n{{ x.y.z }}\n{% endfor %}", "{{ 'a' }}\n{{ raise_exception('No ' + 'way') }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{% set _ = c.reset() %}{{ c.current }}", "{% set j = joiner('|') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}",
    "{% set x = [1] %}{% set y = x %}{{ x is sameas y }}", "{{ 'x' * 3 }}", "{{ [1,2,3]|map('multiply', 2)|list }}", "{{ [[1, [2]], 3]|string }}", "{{ {'a': none}|string }}", "{{ (1, 'a', none)|string ~ (2,) }}",
    "{% set x = 'a' %}{%- macro p(v) -%}{{ v ~ x }}{%- endmacro -%}{% set x = 'b' %}{{ p('1') }}", "{% set outer = 1 %}{% for i in [1] %}{% set outer = 2 %}{% for j in [1] %}{{ outer }}{% set outer = 3 %}{% endfor %}{{ outer }}{% endfor %}{{ outer }}",
    "{%set x=1%}{{x}}", "{{x if x else'n'}}", "{{1if 1else 2}}", "{{ 'a'if t else'b' }}", "{{ not'a' }}", "{{ 5 if(t)else 6 }}", "{{ [1][0] }}{{ {'a':1}['a'] }}{{ 'abc'[1] }}{{ (1,2)[1] }}", "{{ (xs|first).real }}",
]


def render(template, variables):
    try:
        return {"text": _compile_jinja_template(template).render(**variables)}
    except RecursionError:
        return {"error": "recursion", "same": False}
    except Exception as error:  # noqa: BLE001: whatever the reference raises is a refusal
        same = type(error) in (jinja2.exceptions.TemplateError, jinja2.exceptions.UndefinedError)
        return {"error": str(error), "same": same}


def main():
    templates = ["{{ " + line + " }}" for line in EXPRESSIONS.strip().split("\n")]
    for template in templates + TEMPLATES:
        case = {"template": template, **render(template, VARS)}
        if " at 0x" in case.get("text", ""):
            continue  # an address of Python's memory
        print(json.dumps(case, ensure_ascii=False))


if __name__ == "__main__":
    print(json.dumps({"vars": VARS}, ensure_ascii=False))
    main()
