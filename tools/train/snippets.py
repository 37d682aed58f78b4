"""Small Python functions in many spellings, so that a short `def name(args):` has a body worth continuing.

The standard library has almost no textbook functions; these fill the gap. Each family is a list of bodies
with placeholders for the names; the generator varies names, doc strings, constants and order.
"""

import random

# family: (function names, argument lists, doc strings, bodies). {f} function, {a} {b} arguments, {x} {y} {r} locals.
FAMILIES = [
    (("fibonacci", "fib"), ("n", "n", "n", "number", "k"), ("Return the nth Fibonacci number.", "Compute the nth Fibonacci number."), (
        "if {a} < 2:\n    return {a}\nreturn {f}({a} - 1) + {f}({a} - 2)",
        "if {a} <= 1:\n    return {a}\nreturn {f}({a} - 1) + {f}({a} - 2)",
        "{x}, {y} = 0, 1\nfor _ in range({a}):\n    {x}, {y} = {y}, {x} + {y}\nreturn {x}",
        "if {a} == 0:\n    return 0\nif {a} == 1:\n    return 1\nreturn {f}({a} - 1) + {f}({a} - 2)",
        "{x}, {y} = 0, 1\nwhile {a} > 0:\n    {x}, {y} = {y}, {x} + {y}\n    {a} -= 1\nreturn {x}")),
    (("factorial", "fact"), ("n", "n", "number", "k"), ("Return n factorial.", "Compute the factorial of a number."), (
        "if {a} == 0:\n    return 1\nreturn {a} * {f}({a} - 1)",
        "if {a} <= 1:\n    return 1\nreturn {a} * {f}({a} - 1)",
        "{r} = 1\nfor {x} in range(2, {a} + 1):\n    {r} *= {x}\nreturn {r}")),
    (("is_prime", "prime", "isprime"), ("n", "n", "number", "value"), ("Return True if n is prime.", "Check whether a number is prime."), (
        "if {a} < 2:\n    return False\nfor {x} in range(2, int({a} ** 0.5) + 1):\n    if {a} % {x} == 0:\n        return False\nreturn True",
        "if {a} < 2:\n    return False\n{x} = 2\nwhile {x} * {x} <= {a}:\n    if {a} % {x} == 0:\n        return False\n    {x} += 1\nreturn True",
        "return {a} > 1 and all({a} % {x} for {x} in range(2, {a}))")),
    (("gcd", "greatest_common_divisor"), ("a, b", "x, y", "m, n"), ("Return the greatest common divisor.",), (
        "while {b}:\n    {a}, {b} = {b}, {a} % {b}\nreturn {a}",
        "if {b} == 0:\n    return {a}\nreturn {f}({b}, {a} % {b})",
        "while {b} != 0:\n    {a}, {b} = {b}, {a} % {b}\nreturn abs({a})")),
    (("lcm", "least_common_multiple"), ("a, b", "x, y", "m, n"), ("Return the least common multiple.",), (
        "return {a} * {b} // gcd({a}, {b})", "return abs({a} * {b}) // gcd({a}, {b})")),
    (("sum_list", "total", "add_all", "sum_of_list"), ("numbers", "values", "items", "xs"), ("Return the sum of a list.",), (
        "{r} = 0\nfor {x} in {a}:\n    {r} += {x}\nreturn {r}", "return sum({a})")),
    (("average", "mean"), ("numbers", "values", "xs"), ("Return the mean of a list of numbers.",), (
        "return sum({a}) / len({a})", "if not {a}:\n    return 0.0\nreturn sum({a}) / len({a})",
        "{r} = 0\nfor {x} in {a}:\n    {r} += {x}\nreturn {r} / len({a})")),
    (("reverse_string", "reverse", "reversed_text"), ("s", "text", "string"), ("Return the string reversed.",), (
        "return {a}[::-1]", "{r} = ''\nfor {x} in {a}:\n    {r} = {x} + {r}\nreturn {r}", "return ''.join(reversed({a}))")),
    (("is_palindrome", "palindrome"), ("s", "text", "word"), ("Return True if the text reads the same backwards.",), (
        "return {a} == {a}[::-1]", "{r} = {a}.lower()\nreturn {r} == {r}[::-1]",
        "for {x} in range(len({a}) // 2):\n    if {a}[{x}] != {a}[-1 - {x}]:\n        return False\nreturn True")),
    (("count_vowels", "vowels"), ("s", "text", "word"), ("Count the vowels in a text.",), (
        "return sum(1 for {x} in {a} if {x} in 'aeiou')",
        "{r} = 0\nfor {x} in {a}.lower():\n    if {x} in 'aeiou':\n        {r} += 1\nreturn {r}")),
    (("count_words", "word_count"), ("text", "s", "line"), ("Count the words in a text.",), (
        "return len({a}.split())",
        "{r} = {{}}\nfor {x} in {a}.split():\n    {r}[{x}] = {r}.get({x}, 0) + 1\nreturn {r}")),
    (("maximum", "find_max", "largest"), ("numbers", "values", "items"), ("Return the largest value.",), (
        "{r} = {a}[0]\nfor {x} in {a}:\n    if {x} > {r}:\n        {r} = {x}\nreturn {r}", "return max({a})")),
    (("minimum", "find_min", "smallest"), ("numbers", "values", "items"), ("Return the smallest value.",), (
        "{r} = {a}[0]\nfor {x} in {a}:\n    if {x} < {r}:\n        {r} = {x}\nreturn {r}", "return min({a})")),
    (("is_even", "even"), ("n", "number", "x"), ("Return True if n is even.",), ("return {a} % 2 == 0",)),
    (("is_odd", "odd"), ("n", "number", "x"), ("Return True if n is odd.",), ("return {a} % 2 == 1", "return {a} % 2 != 0")),
    (("square", "squared"), ("x", "n", "number"), ("Return the square of a number.",), ("return {a} * {a}", "return {a} ** 2")),
    (("power", "pow_int"), ("x, n", "base, exponent", "a, b"), ("Raise a number to a power.",), (
        "return {a} ** {b}", "{r} = 1\nfor _ in range({b}):\n    {r} *= {a}\nreturn {r}",
        "if {b} == 0:\n    return 1\nreturn {a} * {f}({a}, {b} - 1)")),
    (("add", "plus"), ("a, b", "x, y"), ("Return the sum of two numbers.",), ("return {a} + {b}",)),
    (("multiply", "product"), ("a, b", "x, y"), ("Return the product of two numbers.",), ("return {a} * {b}",)),
    (("binary_search", "search"), ("items, target", "values, key", "a, x"), ("Return the index of the target or -1.",), (
        "low, high = 0, len({a}) - 1\nwhile low <= high:\n    mid = (low + high) // 2\n    if {a}[mid] == {b}:\n        return mid\n"
        "    if {a}[mid] < {b}:\n        low = mid + 1\n    else:\n        high = mid - 1\nreturn -1",)),
    (("linear_search", "index_of", "find"), ("items, target", "values, key"), ("Return the first index of a value or -1.",), (
        "for {x}, value in enumerate({a}):\n    if value == {b}:\n        return {x}\nreturn -1",
        "for {x} in range(len({a})):\n    if {a}[{x}] == {b}:\n        return {x}\nreturn -1")),
    (("bubble_sort", "sort_list"), ("items", "values", "numbers"), ("Sort a list in place.",), (
        "n = len({a})\nfor i in range(n):\n    for j in range(0, n - i - 1):\n        if {a}[j] > {a}[j + 1]:\n"
        "            {a}[j], {a}[j + 1] = {a}[j + 1], {a}[j]\nreturn {a}",)),
    (("quicksort", "quick_sort"), ("items", "values", "numbers"), ("Sort a list by quicksort.",), (
        "if len({a}) <= 1:\n    return {a}\npivot = {a}[0]\nless = [{x} for {x} in {a}[1:] if {x} < pivot]\n"
        "more = [{x} for {x} in {a}[1:] if {x} >= pivot]\nreturn {f}(less) + [pivot] + {f}(more)",)),
    (("flatten", "flatten_list"), ("items", "lists", "nested"), ("Flatten a list of lists.",), (
        "{r} = []\nfor {x} in {a}:\n    {r}.extend({x})\nreturn {r}", "return [{y} for {x} in {a} for {y} in {x}]")),
    (("unique", "remove_duplicates"), ("items", "values", "xs"), ("Return the items without duplicates.",), (
        "seen = set()\n{r} = []\nfor {x} in {a}:\n    if {x} not in seen:\n        seen.add({x})\n        {r}.append({x})\nreturn {r}",
        "return list(set({a}))")),
    (("celsius_to_fahrenheit",), ("celsius", "c"), ("Convert degrees Celsius to Fahrenheit.",), ("return {a} * 9 / 5 + 32",)),
    (("fahrenheit_to_celsius",), ("fahrenheit", "f"), ("Convert degrees Fahrenheit to Celsius.",), ("return ({a} - 32) * 5 / 9",)),
    (("clamp", "limit"), ("value, low, high", "x, low, high"), ("Keep a value within limits.",), (
        "return max(low, min({a}, high))", "if {a} < low:\n    return low\nif {a} > high:\n    return high\nreturn {a}")),
    (("read_file", "read_text", "load_text"), ("path", "filename"), ("Return the contents of a file.",), (
        "with open({a}) as f:\n    return f.read()", "with open({a}, encoding='utf-8') as file:\n    return file.read()")),
    (("read_lines", "load_lines"), ("path", "filename"), ("Return the lines of a file.",), (
        "with open({a}) as f:\n    return [line.strip() for line in f]", "with open({a}) as f:\n    return f.readlines()")),
    (("digits", "sum_digits", "digit_sum"), ("n", "number"), ("Return the sum of the digits.",), (
        "{r} = 0\nwhile {a} > 0:\n    {r} += {a} % 10\n    {a} //= 10\nreturn {r}", "return sum(int({x}) for {x} in str({a}))")),
    (("collatz", "collatz_steps"), ("n", "number"), ("Count the Collatz steps to one.",), (
        "{r} = 0\nwhile {a} != 1:\n    if {a} % 2 == 0:\n        {a} //= 2\n    else:\n        {a} = 3 * {a} + 1\n    {r} += 1\nreturn {r}",)),
    (("hello", "greet"), ("name",), ("Greet somebody.",), ("print('Hello, ' + {a})", "return 'Hello, ' + {a} + '!'", "print(f'Hello, {{{a}}}!')")),
    (("primes", "primes_up_to", "sieve"), ("n", "limit"), ("Return the primes up to a limit.",), (
        "{r} = []\nfor {x} in range(2, {a} + 1):\n    if is_prime({x}):\n        {r}.append({x})\nreturn {r}",
        "return [{x} for {x} in range(2, {a} + 1) if is_prime({x})]")),
]
INTEGER_NAMES = ("i", "i", "x", "k", "j")
PAIRS = (("a", "b"), ("a", "b"), ("x", "y"), ("prev", "curr"), ("first", "second"))
RESULTS = ("result", "result", "total", "out", "res")


def snippet(rng):
    """One function definition."""
    names, arguments, docs, bodies = rng.choices(FAMILIES, [5] + [1] * (len(FAMILIES) - 1))[0]
    name, argument_list, body = rng.choice(names), rng.choice(arguments), rng.choice(bodies)
    parts = [part.strip() for part in argument_list.split(",")]
    needs_pair = "{x}, {y}" in body
    x, y = rng.choice(PAIRS) if needs_pair else (rng.choice(INTEGER_NAMES), "y")
    r = rng.choice(RESULTS)
    used = {"f": name, "a": parts[0], "b": parts[1] if len(parts) > 1 else "", "x": x, "y": y, "r": r}
    if x in parts or y in parts or r == name:
        return snippet(rng)
    text = body.format(**used)
    lines = [f"def {name}({argument_list}):"]
    if rng.random() < 0.35:
        lines.append(f'    """{rng.choice(docs)}"""')
    return "\n".join(lines + ["    " + line for line in text.split("\n")]) + "\n"


def document(rng):
    """A few functions, two blank lines between them; sometimes a call at the end."""
    text = "\n\n".join(snippet(rng) for _ in range(rng.randint(1, 4)))
    if rng.random() < 0.2:
        text += "\n\nif __name__ == '__main__':\n    main()\n"
    return text


if __name__ == "__main__":
    print(document(random.Random(1)))
