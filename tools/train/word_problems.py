"""Generated word arithmetic: the whole world that phi3-tiny-chat knows.

A *story* is one self-contained question plus what can be asked after it ("And if she gives away 2?").
A *dialogue* is a system prompt that may set the form of the answers, then small talk and stories.
Every assistant turn is right by construction, and every answer has exactly one right spelling in each form.

Training and held-out dialogues are disjoint by construction: a story belongs to the held-out side if and
only if a hash of its opening question falls in one class of HELD_OUT_MODULUS (see is_held_out), and a
dialogue holds stories of one side only.
"""

import hashlib
import json
import random

HELD_OUT_MODULUS = 32

FEMALE = "Anna Maria Lucy Emma Sara Nina Zoe Leila Priya Mei Rosa Hana Ruth Alice Fatima Kate".split()
MALE = "Tom Ben Peter Omar Leo Max Paul Sam Noah Ravi Ivan Hugo Ken Karim Jack Bob".split()
OBJECTS = [tuple(pair.split("/")) for pair in (
    "apple/apples orange/oranges pear/pears banana/bananas lemon/lemons cookie/cookies cake/cakes "
    "egg/eggs book/books pencil/pencils pen/pens marble/marbles stamp/stamps coin/coins card/cards "
    "balloon/balloons sticker/stickers flower/flowers shell/shells stone/stones toy/toys ball/balls hat/hats "
    "button/buttons key/keys ticket/tickets plum/plums peach/peaches nut/nuts potato/potatoes").split()]
CONTAINERS = [tuple(pair.split("/")) for pair in (
    "box/boxes bag/bags basket/baskets jar/jars tray/trays drawer/drawers shelf/shelves packet/packets").split()]

FORMS = {
    "number": [
        "Answer with the number only.", "Reply with just the number.", "Give only the number.",
        "Answer only with a number.", "Your answer must be a number and nothing else.",
        "Respond with the number only, no words.", "Only the number, please.",
    ],
    "words": [
        "Answer in words.", "Write the number in words.", "Reply with the number in words only.",
        "Spell the number out in words.", "Give the answer in words, not digits.",
    ],
    "sentence": [
        "Answer in a full sentence.", "Reply with a complete sentence.", "Use a full sentence.",
        "Give the answer as a sentence.", "Always answer in one full sentence.",
    ],
    "json": [
        'Answer as JSON {"answer": N}.', 'Reply with JSON like {"answer": N}.', "Answer as JSON.",
        'Give a JSON object with the key "answer".', 'Return only JSON of the form {"answer": N}.',
    ],
    "unit": [
        "Answer with the number and the unit.", "Give the number and what is counted.",
        "Reply with the number and the thing.", "Answer like this: 5 apples.",
    ],
    "steps": [
        "Show the steps.", "Show your work.", "Explain step by step.", "Write the calculation first.",
        "Show the calculation, then answer in a sentence.", "Think step by step.",
    ],
}
NEUTRAL_SYSTEM = [
    "You are a helpful assistant.", "You are a friendly maths tutor.", "You help children with word problems.",
    "You are a helpful AI assistant.", "You solve word problems.",
]
REFORMAT = {
    "words": ["Say that in words.", "In words, please.", "How is that in words?", "Spell it out."],
    "number": ["Just the number, please.", "Only the number?", "Give me only the number."],
    "json": ["As JSON, please.", "Give me that as JSON.", "Now as JSON."],
    "sentence": ["In a full sentence, please.", "Say it in a sentence.", "Now as a sentence."],
    "steps": ["Show me the steps.", "How did you get that?", "Show your work, please."],
}
GREET = "Hello! Ask me a word problem."
SMALL_TALK = [
    (["Hello", "Hello!", "hello", "Hi", "Hi!", "hi", "Hi there!", "Hey", "Hey!", "Good morning!", "Good evening!",
      "Hello there.", "Good afternoon."], GREET),
    (["How are you?", "How are you today?", "How is it going?", "how are you?"], "I am fine, thank you. What shall we count?"),
    (["Who are you?", "What are you?", "What is your name?", "Are you a robot?", "who are you?"],
     "I am a tiny Phi model. I solve word problems."),
    (["What can you do?", "Can you help me?", "Help", "help", "What do you know?", "Can you help me with maths?"],
     "I can add, subtract, multiply and divide in short stories. Try me!"),
    (["Thanks!", "Thank you.", "Thank you!", "Thanks a lot.", "thanks", "Great, thanks!", "Good job!", "Well done!"],
     "You are welcome!"),
    (["Bye", "Bye!", "Goodbye!", "See you later.", "See you!", "Good night!"], "Goodbye! Come back with more numbers."),
    (["What is the capital of France?", "Tell me a joke.", "Write a poem.", "What is the weather like?",
      "Who is the president?", "What is the meaning of life?", "Write a program in Python.", "Tell me a story.",
      "Do you like music?", "What time is it?", "Translate this into German.", "How far is the moon?",
      "What is love?", "Tell me about dogs.", "Sing a song.", "Where is Paris?", "Why is the sky blue?"],
     "I only know word problems. Ask me how many!"),
]

ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen").split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    rest = n % 100
    return ONES[n // 100] + " hundred" + (" and " + in_words(rest) if rest else "")


def is_held_out(question):
    digest = hashlib.sha256(question.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_MODULUS == 0


class Answer:
    """A right answer before its form is chosen: value, unit words, sentence and the equations leading to it."""

    def __init__(self, value, unit, sentence, steps=()):
        self.value, self.unit, self.sentence, self.steps = value, unit, sentence, list(steps)

    def render(self, form):
        if form == "number":
            return str(self.value)
        if form == "words":
            return in_words(self.value)
        if form == "json":
            return json.dumps({"answer": self.value})
        if form == "unit":
            return f"{self.value} {self.unit}".strip()
        if form == "steps":
            return " ".join([step + "." for step in self.steps] + [self.sentence])
        return self.sentence


class Story:
    """One question and the state later questions refer to. `state` is None where nothing can follow."""

    def __init__(self, kind, question, answer, state=None):
        self.kind, self.question, self.answer, self.state = kind, question, answer, state


class State:
    """Someone holds `n` of something; `first` is what they held at first."""

    def __init__(self, who, pronoun, thing, n, first):
        self.who, self.pronoun, self.thing, self.n, self.first = who, pronoun, thing, n, first


class Generator:
    def __init__(self, seed, held_out=False):
        self.rng = random.Random(seed)
        self.held_out = held_out

    # ---- words and numbers

    def person(self, other_than=()):
        while True:
            female = self.rng.random() < 0.5
            name = self.rng.choice(FEMALE if female else MALE)
            if name not in other_than:
                return name, "she" if female else "he"

    def number(self, top):
        """1..top, small numbers more often than large ones."""
        bound = top if self.rng.random() < 0.6 else min(top, 8)
        return self.rng.randint(1, bound)

    def factors(self):
        return self.rng.randint(2, 5), self.rng.randint(2, 5)

    @staticmethod
    def count(n, thing):
        return thing[0] if n == 1 else thing[1]

    def quantity(self, n, thing):
        return f"{n} {self.count(n, thing)}"

    # ---- changes: what may happen to the number somebody holds

    def change(self, n, allow=("add", "sub", "double", "half")):
        """(operation, operand) that is possible on n; results stay within 0..29."""
        while True:
            op = self.rng.choices(("add", "sub", "double", "half"), (45, 45, 6, 4))[0]
            if op not in allow:
                continue
            if op == "add" and n <= 20:
                return op, self.number(9)
            if op == "sub" and n >= 1:
                return op, self.number(min(9, n))
            if op == "double" and 1 <= n <= 10:
                return op, 2
            if op == "half" and 2 <= n <= 20 and n % 2 == 0:
                return op, 2
            allow = ("add", "sub")

    @staticmethod
    def apply(n, op, b):
        value = {"add": n + b, "sub": n - b, "double": 2 * n, "half": n // 2}[op]
        sign = {"add": "+", "sub": "-", "double": "*", "half": "/"}[op]
        return value, f"{n} {sign} {b} = {value}"

    def clause(self, op, b, who, thing):
        """'buys 4 more' in the present tense, third person."""
        friend = self.person((who,))[0]
        if op == "add":
            return self.rng.choice([
                f"buys {b} more", f"finds {b} more", f"gets {b} more", f"gets {b} more from {friend}",
            ])
        if op == "sub":
            return self.rng.choice([
                f"gives away {b}", f"gives {b} to {friend}", f"loses {b}", f"sells {b}",
            ])
        if op == "double":
            return self.rng.choice(["doubles them", "doubles that number", "gets as many again"])
        return self.rng.choice(["gives away half of them", "loses half of them", "sells half of them"])

    def how_many(self, who, pronoun, thing):
        named = self.rng.random() < 0.3
        subject = who if named else pronoun
        return self.rng.choice([
            f"How many {thing[1]} does {subject} have?", f"How many {thing[1]} does {subject} have now?",
            f"How many {thing[1]} does {subject} have in the end?", f"How many does {subject} have now?",
            f"How many {thing[1]} has {subject} got now?",
        ])

    def holds(self, who, n, thing, steps):
        unit = self.count(n, thing)
        return Answer(n, unit, f"{who} has {n} {unit}.", steps)

    # ---- stories

    def story(self, plain=False):
        makers = (self.one_change, self.two_changes, self.groups, self.groups_then_change, self.share,
                  self.compare, self.together, self.together_then_change, self.plain)
        weights = (24, 26, 9, 9, 8, 7, 6, 6, 5)
        while True:
            story = self.plain() if plain else self.rng.choices(makers, weights)[0]()
            if is_held_out(story.question) == self.held_out:
                return story

    def opening(self, who, n, thing):
        amount = self.quantity(n, thing)
        return self.rng.choice([f"{who} has {amount}", f"{who} has got {amount}", f"{who} owns {amount}",
                                f"{who} starts with {amount}", f"{who} had {amount}"])

    def one_change(self):
        (who, pronoun), thing = self.person(), self.rng.choice(OBJECTS)
        n = self.number(18)
        op, b = self.change(n)
        value, step = self.apply(n, op, b)
        opening, clause = self.opening(who, n, thing), self.clause(op, b, who, thing)
        joint = self.rng.choice([f"{opening} and {clause}.", f"{opening}. {pronoun.capitalize()} {clause}.",
                                 f"{opening}. Then {pronoun} {clause}.", f"{opening} and then {clause}."])
        return Story("one_step", f"{joint} {self.how_many(who, pronoun, thing)}",
                     self.holds(who, value, thing, [step]), State(who, pronoun, thing, value, n))

    def two_changes(self):
        (who, pronoun), thing = self.person(), self.rng.choice(OBJECTS)
        n = self.number(15)
        op1, b1 = self.change(n)
        middle, step1 = self.apply(n, op1, b1)
        op2, b2 = self.change(middle)
        value, step2 = self.apply(middle, op2, b2)
        opening = self.opening(who, n, thing)
        first, second = self.clause(op1, b1, who, thing), self.clause(op2, b2, who, thing)
        joint = self.rng.choice([
            f"{opening}. {pronoun.capitalize()} {first} and {second}.",
            f"{opening}. {pronoun.capitalize()} {first} and then {second}.",
            f"{opening}. First {pronoun} {first}, then {pronoun} {second}.",
            f"{opening} and {first}. Then {pronoun} {second}.",
            f"{opening}, {first} and {second}.",
        ])
        return Story("two_step", f"{joint} {self.how_many(who, pronoun, thing)}",
                     self.holds(who, value, thing, [step1, step2]), State(who, pronoun, thing, value, n))

    def boxes(self, who, n_groups, per_group, thing):
        group = self.rng.choice(CONTAINERS)
        groups = self.quantity(n_groups, group)
        each = self.quantity(per_group, thing)
        if n_groups == 1:
            return f"{who} has {groups} with {each}"
        return self.rng.choice([f"{who} has {groups} with {each} in each", f"{who} has {groups} of {each} each",
                                f"{who} buys {groups}. Each {group[0]} holds {each}"])

    def groups(self):
        (who, pronoun), thing = self.person(), self.rng.choice(OBJECTS)
        a, b = self.factors()
        value = a * b
        question = self.rng.choice([f"How many {thing[1]} does {pronoun} have?", f"How many {thing[1]} is that?",
                                    f"How many {thing[1]} are there in all?", f"How many {thing[1]} does {who} have in total?"])
        return Story("one_step", f"{self.boxes(who, a, b, thing)}. {question}",
                     self.holds(who, value, thing, [f"{a} * {b} = {value}"]),
                     State(who, pronoun, thing, value, value))

    def groups_then_change(self):
        (who, pronoun), thing = self.person(), self.rng.choice(OBJECTS)
        a, b = self.factors()
        op, c = self.change(a * b, ("add", "sub"))
        value, step = self.apply(a * b, op, c)
        joint = f"{self.boxes(who, a, b, thing)}. {self.rng.choice(['', 'Then '])}{pronoun} {self.clause(op, c, who, thing)}."
        joint = joint.replace(f". {pronoun} ", f". {pronoun.capitalize()} ")
        return Story("two_step", f"{joint} {self.how_many(who, pronoun, thing)}",
                     self.holds(who, value, thing, [f"{a} * {b} = {a * b}", step]),
                     State(who, pronoun, thing, value, a * b))

    def share(self):
        (who, pronoun), thing = self.person(), self.rng.choice(OBJECTS)
        parts, each = self.factors()
        total = parts * each
        receiver = self.rng.choice(["friend", "child", "cousin"])
        receivers = {"friend": "friends", "child": "children", "cousin": "cousins"}[receiver]
        unit = self.count(each, thing)
        answer_step = f"{total} / {parts} = {each}"
        amount, n_parts = self.quantity(total, thing), parts
        if self.rng.random() < 0.35:
            bought = self.rng.randint(1, total - 1)
            start = total - bought
            text = (f"{self.opening(who, start, thing)} and buys {bought} more. "
                    f"{pronoun.capitalize()} shares them equally among {n_parts} {receivers}.")
            kind, steps = "two_step", [f"{start} + {bought} = {total}", answer_step]
        else:
            text = self.rng.choice([f"{who} shares {amount} equally among {n_parts} {receivers}.",
                                    f"{who} has {amount} and divides them equally between {n_parts} {receivers}.",
                                    f"{who} gives {amount} to {n_parts} {receivers}, the same number to each."])
            kind, steps = "one_step", [answer_step]
        question = self.rng.choice([f"How many does each {receiver} get?", f"How many {thing[1]} does each {receiver} get?",
                                    f"How many {thing[1]} does every {receiver} get?"])
        return Story(kind, f"{text} {question}",
                     Answer(each, unit, f"Each {receiver} gets {each} {unit}.", steps))

    def two_people(self, top):
        first, thing = self.person(), self.rng.choice(OBJECTS)
        second = self.person((first[0],))
        return first[0], second[0], thing, self.number(top), self.number(top)

    def both_have(self, one, two, thing, a, b):
        return self.rng.choice([f"{one} has {self.quantity(a, thing)} and {two} has {b}.",
                                f"{one} has {self.quantity(a, thing)}. {two} has {self.quantity(b, thing)}.",
                                f"{one} owns {self.quantity(a, thing)} and {two} owns {self.quantity(b, thing)}."])

    def compare(self):
        one, two, thing, a, b = self.two_people(18)
        if a == b:
            a += 1
        text = self.both_have(one, two, thing, a, b)
        more, less = (one, two) if a > b else (two, one)
        high, low = max(a, b), min(a, b)
        value = high - low
        if self.rng.random() < 0.6:
            question = self.rng.choice([f"How many more {thing[1]} does {more} have than {less}?", f"How many more does {more} have?"])
            word = "more"
        else:
            question = self.rng.choice([f"How many fewer {thing[1]} does {less} have than {more}?", f"How many fewer does {less} have?"])
            more, less, word = less, more, "fewer"
        unit = self.count(value, thing)
        return Story("one_step", f"{text} {question}",
                     Answer(value, unit, f"{more} has {value} {word} {unit} than {less}.", [f"{high} - {low} = {value}"]))

    def together(self):
        one, two, thing, a, b = self.two_people(12)
        question = self.rng.choice([f"How many {thing[1]} do they have together?", "How many do they have together?",
                                    f"How many {thing[1]} do they have in all?"])
        unit = self.count(a + b, thing)
        return Story("one_step", f"{self.both_have(one, two, thing, a, b)} {question}",
                     Answer(a + b, unit, f"Together they have {a + b} {unit}.", [f"{a} + {b} = {a + b}"]))

    def together_then_change(self):
        """'Ben has 3 more than Anna. How many do they have together?'"""
        one, two, thing, a, b = self.two_people(9)
        relation, other, sign = f"{b} more", a + b, "+"
        if b < a and self.rng.random() < 0.4:
            relation, other, sign = f"{b} fewer", a - b, "-"
        text = f"{one} has {self.quantity(a, thing)}. {two} has {relation} than {one}."
        first_step = f"{a} {sign} {b} = {other}"
        if self.rng.random() < 0.5:
            question = self.rng.choice([f"How many does {two} have?", f"How many {thing[1]} does {two} have?"])
            unit = self.count(other, thing)
            return Story("one_step", f"{text} {question}",
                         Answer(other, unit, f"{two} has {other} {unit}.", [first_step]))
        total = a + other
        question = self.rng.choice([f"How many {thing[1]} do they have together?", "How many do they have together?"])
        unit = self.count(total, thing)
        return Story("two_step", f"{text} {question}",
                     Answer(total, unit, f"Together they have {total} {unit}.", [first_step, f"{a} + {other} = {total}"]))

    def plain(self):
        """Bare arithmetic of one or two operations."""
        op = self.rng.choice("++--*/")
        if op == "+":
            a, b = self.number(18), self.number(9)
            value = a + b
        elif op == "-":
            a = self.number(27)
            b = self.number(min(a, 9))
            value = a - b
        else:
            a, b = self.factors()
            value = a * b
            if op == "/":
                a, value = value, a
        words = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
        steps, said, in_signs = [f"{a} {op} {b} = {value}"], f"{a} {words[op]} {b}", f"{a} {op} {b}"
        if self.rng.random() < 0.3:
            then, c = self.change(value, ("add", "sub"))
            sign = "+" if then == "add" else "-"
            value, step = self.apply(value, then, c)
            steps, said, in_signs = steps + [step], f"{said} {words[sign]} {c}", f"{in_signs} {sign} {c}"
        shown = self.rng.choice([in_signs, in_signs, in_signs, said])
        question = self.rng.choice([f"What is {shown}?", f"How much is {shown}?", f"{shown}?", f"{shown}?", f"What is {shown}"])
        return Story("one_step" if len(steps) == 1 else "two_step", question,
                     Answer(value, "", f"{said} is {value}.", steps))

    # ---- turns that refer back

    def follow_up(self, state, last):
        """A later turn about `state` (changed in place): (question, Answer, form or None)."""
        r = self.rng.random()
        if r < 0.16:
            form = self.rng.choice(list(REFORMAT))
            return self.rng.choice(REFORMAT[form]), last, form
        if r < 0.24:
            unit = self.count(state.first, state.thing)
            question = self.rng.choice([f"How many did {state.pronoun} have at first?", f"How many did {state.who} have at the start?",
                                        f"How many {state.thing[1]} did {state.pronoun} have at first?"])
            return question, Answer(state.first, unit, f"{state.who} had {state.first} {unit} at first."), None
        op, b = self.change(state.n)
        before = state.n
        state.n, step = self.apply(before, op, b)
        clause = self.clause(op, b, state.who, state.thing)
        question = self.rng.choice([
            f"And if {state.pronoun} {clause}?", f"And if {state.pronoun} then {clause}?",
            f"Then {state.pronoun} {clause}. How many now?", f"Now {state.pronoun} {clause}. How many are left?" if op in ("sub", "half")
            else f"Now {state.pronoun} {clause}. How many is that?",
            f"What if {state.pronoun} {clause}?", f"{state.who} {clause}. {self.how_many(state.who, state.pronoun, state.thing)}",
        ])
        return question, self.holds(state.who, state.n, state.thing, [step]), None

    # ---- tools

    def tool_dialogue(self):
        """A system prompt with a calculator: a call, its result, the sentence."""
        tool = json.dumps([{"name": "calculate", "description": "Evaluate an expression",
                            "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}}}])
        system = self.rng.choice(["You are a helpful assistant with some tools.", "Use the tools.", "You have a calculator."])
        messages = [{"role": "system", "content": system, "tools": tool}]
        for _ in range(self.rng.choice((1, 1, 2))):
            while True:
                story = self.story()
                if story.kind == "one_step":
                    break
            expression = story.answer.steps[0].split(" = ")[0]
            call = json.dumps([{"name": "calculate", "arguments": {"expression": expression}}])
            messages += [
                {"role": "user", "content": story.question},
                {"role": "assistant", "content": f"<|tool_call|>{call}<|/tool_call|>"},
                {"role": "tool_response", "content": str(story.answer.value)},
                {"role": "assistant", "content": story.answer.sentence},
            ]
        return messages

    # ---- dialogues

    def drill(self, n_turns):
        """Bare arithmetic only, one question after the other: the densest practice per token."""
        form = self.rng.choice(("number", "number", "number", "number", "number", "steps", "words", "json"))
        messages = [{"role": "system", "content": self.rng.choice(FORMS[form])}]
        for _ in range(n_turns):
            story = self.story(plain=True)
            messages += [{"role": "user", "content": story.question},
                         {"role": "assistant", "content": story.answer.render(form)}]
        return messages

    def dialogue(self, n_turns):
        """About n_turns user turns. Returns (messages, kinds) with one kind per assistant message."""
        form, messages, kinds = self.system()

        def turn(question, answer, kind):
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": answer})
            kinds.append(kind)

        def small_talk(groups):
            said, reply = self.rng.choice(groups)
            turn(self.rng.choice(said), reply, "small_talk")

        if self.rng.random() < 0.08:
            small_talk(SMALL_TALK[:4])
        while len(kinds) < n_turns:
            story = self.story()
            question, once = story.question, form
            if self.rng.random() < 0.06:
                once = self.rng.choice(list(FORMS))
                question += " " + self.rng.choice(FORMS[once])
            turn(question, story.answer.render(once), f"{story.kind}/{once}")
            last, state = story.answer, story.state
            while state and len(kinds) < n_turns and self.rng.random() < 0.65:
                question, last, asked = self.follow_up(state, last)
                turn(question, last.render(asked or form), "reformat" if asked else f"follow_up/{form}")
            if self.rng.random() < 0.05:
                small_talk(SMALL_TALK)
        return messages, kinds

    def system(self):
        if self.rng.random() < 0.25:
            form = "sentence"
            if self.rng.random() < 0.5:
                return form, [], []
            return form, [{"role": "system", "content": self.rng.choice(NEUTRAL_SYSTEM)}], []
        form = self.rng.choice(list(FORMS))
        text = self.rng.choice(FORMS[form])
        if self.rng.random() < 0.25:
            text = self.rng.choice(NEUTRAL_SYSTEM) + " " + text
        return form, [{"role": "system", "content": text}], []
