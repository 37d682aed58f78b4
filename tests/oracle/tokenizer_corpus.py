"""Texts for the tokenizer oracle, made from a seed: the same on every machine and in every run.

mixed_text() is a few megabytes of what users send: code, prose in many scripts, emoji, runs of
blanks, digits, control tokens within text, all line endings. random_strings() are short and hostile:
any code point beside any other, with the characters that patterns treat specially drawn more often.
"""
import random
import unicodedata

SENTENCES = [
    "The old lighthouse keeper counted 1,204 steps twice, and still didn't believe the stairs' end.",
    "She'd said: \"It's fine\" -- we'll see; they've 3.14159 reasons (I'm sure you'd agree).",
    "THE SHIP'S LOG WASN'T UPDATED, YOU'LL NOTICE; WE'VE HAD IT'D BEEN I'M.",
    "Grüße aus Köln: der Bär fraß süße Äpfel, während 42 Füchse über Öfen sprangen.",
    "L'été dernier, à la plage, nous avons mangé des crêpes ; quel délice, n'est-ce pas ?",
    "El ñandú corrió rápido por la pingüinera, ¿verdad? ¡Sí, mañana también!",
    "Žluťoučký kůň běžel po louce a přeskočil čtyři potůčky; řeka šuměla.",
    "Con mèo nhỏ ngủ trên mái nhà ấm áp, còn trời thì đổ mưa suốt đêm.",
    "Ο γάτος κοιμάται στη ζεστή στέγη και ΟΝΕΙΡΕΥΕΤΑΙ ψάρια κάθε νύχτα.",
    "Кот спит на тёплой крыше, а ДОЖДЬ идёт уже 17 часов подряд. Ёлка, объём.",
    "Кіт їсть рибу; її ґанок пофарбовано у жовтий колір. Ђаво, Њујорк, Ќе, Љубав.",
    "Կատուն քնում է տաք տանիքին, իսկ անձրևը չի դադարում։",
    "კატა თბილ სახურავზე იძინებს და თევზები ესიზმრება. ᲙᲐᲢᲐ",
    "החתול ישן על הגג החם, ובלילה יורד גשם. שָׁלוֹם עוֹלָם",
    "القطة تنام على السطح الدافئ، والمطر يهطل منذ ١٢ ساعة. كِتَابٌ جَمِيلٌ",
    "گربه روی بام گرم می‌خوابد و باران می‌بارد؛ ۱۲۳۴۵.",
    "ܩܛܐ ܕܡܟ ܥܠ ܐܓܪܐ",
    "बिल्ली गर्म छत पर सोती है और बारिश रात भर होती रहती है। १२३४",
    "বিড়াল গরম ছাদে ঘুমায়, আর সারারাত বৃষ্টি হয়। ৪৫৬",
    "ਬਿੱਲੀ ਨਿੱਘੀ ਛੱਤ ਉੱਤੇ ਸੌਂਦੀ ਹੈ।",
    "બિલાડી ગરમ છત પર સૂએ છે અને વરસાદ પડે છે.",
    "ବିଲେଇ ଗରମ ଛାତ ଉପରେ ଶୋଇଛି।",
    "பூனை சூடான கூரையில் தூங்குகிறது; மழை பெய்கிறது.",
    "పిల్లి వెచ్చని పైకప్పుపై నిద్రపోతుంది.",
    "ಬೆಕ್ಕು ಬೆಚ್ಚಗಿನ ಛಾವಣಿಯ ಮೇಲೆ ಮಲಗುತ್ತದೆ.",
    "പൂച്ച ചൂടുള്ള മേൽക്കൂരയിൽ ഉറങ്ങുന്നു.",
    "පූසා උණුසුම් වහලය මත නිදාගනී.",
    "แมวนอนหลับบนหลังคาอุ่น ๆ และฝนตกทั้งคืน ๑๒๓",
    "ແມວນອນຢູ່ເທິງຫຼັງຄາອຸ່ນ",
    "ཞི་མི་ཐོག་ཁར་གཉིད་ཉལ་བ།",
    "ကြောင်သည် နွေးထွေးသော ခေါင်မိုးပေါ်တွင် အိပ်သည်။",
    "ឆ្មាដេកលើដំបូលក្តៅ ហើយភ្លៀងធ្លាក់ពេញមួយយប់។",
    "ድመቷ በሞቃታማው ጣሪያ ላይ ትተኛለች። ፩፪፫",
    "ᎭᏫᎾᏗᏢ ꮳꮃꭹ ᏪᏌ",
    "ᠮᠤᠤᠷ ᠳᠡᠭᠡᠪᠦᠷᠢ",
    "고양이가 따뜻한 지붕 위에서 잠을 자고 비가 온다. ㅋㅋㅋ 각",
    "猫は暖かい屋根の上で眠り、雨は一晩中ふっています。ネコ・ﾈｺ、㍿、Ⅷ、①②③。",
    "猫在温暖的屋顶上睡觉,雨下了一整夜。一二三〇,全角ABC123。",
    "貓在溫暖的屋頂上睡覺「雨」下了整夜。𠮷野家的𩸽。",
    "ⵎⵓⵛ ⵉⵟⵟⴻⵙ ߒߞߏ ꦏꦸꦕꦶꦁ ᬓᬸᬘᬶᬂ 𞤀𞤁𞤂𞤢𞤣𞤤 𐐀𐐨𐐩 𝐀𝐛𝟙𝟚",
    "Ǆ ǅ ǆ ǈ ŉ ſt 'ſ İ ı ß ẞ ﬁ ﬅ K Å ª º ʰ ⅷ ²³ ½",
]

SCRIPT_BLOCKS = [
    (0x41, 0x7B), (0xC0, 0x250), (0x370, 0x400), (0x400, 0x530), (0x531, 0x590), (0x591, 0x5F5),
    (0x600, 0x700), (0x700, 0x7C0), (0x900, 0x980), (0x980, 0xA00), (0xA00, 0xB00), (0xB82, 0xC00),
    (0xC00, 0xD00), (0xD00, 0xE00), (0xE01, 0xE5C), (0xE81, 0xF00), (0xF00, 0x1000),
    (0x1000, 0x10A0), (0x10A0, 0x1100), (0x1200, 0x1380), (0x13A0, 0x1400), (0x1780, 0x1800),
    (0x1800, 0x18AB), (0x1E00, 0x2000), (0x2C00, 0x2E00), (0x3041, 0x3100), (0x4E00, 0x9FFF),
    (0xA640, 0xA7CA), (0xAC00, 0xD7A4), (0x10400, 0x10500), (0x1E900, 0x1E95A), (0x20000, 0x2A6DF),
]

EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇯🇵🇩🇪", "1️⃣", "❤️", "🦙", "🫠", "👨🏿‍🚀", "✈︎", "☺️", "🧑‍💻"]

BLANKS = [" ", "  ", "\n", "\t", "\r\n", "\r", "\n\n", "\u00a0", "\u3000", "\u2028", "\u0085",
          "\u200b", "\u1680", "\u2009", "\x0b", "\x0c", "\x1c", "\ufeff", "\u202f"]

CONTRACTIONS = ["'s", "'S", "'t", "'RE", "'re", "'Ve", "'m", "'lL", "'d", "'ſ", "'", "''", "’s", "'l"]

CODE = [
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    "for (size_t i = 0; i < n; i++) {\n\tsum += a[i] * b[i];\t/* dot */\n}\n",
    "SELECT id, COUNT(*) FROM orders WHERE total >= 100.50 GROUP BY id; -- it's done\n",
    "<div class=\"row\">\r\n\t<p>Hello&nbsp;World</p>\r\n</div>\r\n",
    "{\"name\": \"x\", \"values\": [1, 22, 333, 4444, 55555], \"ok\": true}\n",
    "fn main() -> Result<(), Box<dyn Error>> { println!(\"{:?}\", HashMap::<String, i32>::new()); }\n",
    "https://example.org/path/to/file.html?query=a%20b&lang=de#section-3\n",
    "x = 0xDEADBEEF ^ 1e-10 + 3.0E+8 // 2**10 != None\n",
    "const getUserNameById = async (userID) => `${HTTPServer.URLPath}/users/${userID}`;\n",
]


def _letters(block):
    return [chr(c) for c in range(*block) if unicodedata.category(chr(c))[0] in "LM"]


class _Maker:
    def __init__(self, seed, specials):
        self.rng = random.Random(seed)
        self.specials = specials
        self.scripts = [_letters(block) for block in SCRIPT_BLOCKS]

    def words(self):
        letters = self.rng.choice(self.scripts)
        return " ".join(
            "".join(self.rng.choices(letters, k=self.rng.randint(1, 9)))
            for _ in range(self.rng.randint(3, 30))
        )

    def digits(self):
        return self.rng.choice(["", "$", "-", " "]) + "".join(
            self.rng.choices("0123456789.,:", k=self.rng.randint(1, 25)))

    def blanks(self):
        one = self.rng.choice(BLANKS)
        if self.rng.random() < 0.5:
            return one * self.rng.randint(1, 90)
        return "".join(self.rng.choices(BLANKS[:6], k=self.rng.randint(1, 30)))

    def special(self):
        token = self.rng.choice(self.specials)
        around = ["", " ", "\n", "  \n ", "x"]
        if self.rng.random() < 0.1:
            token = token[: self.rng.randint(1, len(token))]
        return self.rng.choice(around) + token + self.rng.choice(around)

    def sentence(self):
        text = self.rng.choice(SENTENCES)
        return unicodedata.normalize("NFD", text) if self.rng.random() < 0.1 else text

    def code(self):
        indent = self.rng.choice(["", "    ", "\t", "        ", "\t\t"])
        return "".join(indent + line for line in self.rng.choice(CODE).splitlines(keepends=True))

    def document(self, n_parts):
        kinds = [self.sentence] * 6 + [self.words] * 3 + [self.code] * 5 + [
            self.digits, self.blanks, self.special, lambda: self.rng.choice(EMOJI),
            lambda: self.rng.choice(CONTRACTIONS)]
        joints = ["", " ", " ", "\n", "\r\n", "\n\n", ". "]
        return "".join(self.rng.choice(kinds)() + self.rng.choice(joints) for _ in range(n_parts))

    def random_char(self):
        r = self.rng.random()
        if r < 0.25:
            return chr(self.rng.randint(0x20, 0x7E))
        if r < 0.35:
            return self.rng.choice(BLANKS)
        if r < 0.42:
            return self.rng.choice(CONTRACTIONS)
        if r < 0.65:
            return self.rng.choice(self.rng.choice(self.scripts))
        if r < 0.68:
            return self.rng.choice(self.specials)
        if r < 0.72:
            return self.rng.choice(EMOJI)
        cp = self.rng.randint(0, 0x10FFFF if r < 0.85 else 0x2FFF)
        return chr(cp) if not 0xD800 <= cp < 0xE000 else "\ufffd"


def mixed_text(specials, n_bytes=5_200_000, seed=1):
    """Documents of 1 to 60 parts, together at least n_bytes of UTF-8."""
    maker = _Maker(seed, specials)
    documents, total = [], 0
    while total < n_bytes:
        documents.append(maker.document(maker.rng.randint(1, 60)))
        total += len(documents[-1].encode())
    return documents


def random_strings(specials, n=100_000, seed=2):
    maker = _Maker(seed, specials)
    return ["".join(maker.random_char() for _ in range(maker.rng.randint(0, 24))) for _ in range(n)]


def every_character():
    """Code points between characters of the classes that patterns tell apart: every one where most
    are assigned, and samples of the rest."""
    dense = [*range(0, 0xD800), *range(0xF900, 0x20000), *range(0xE0000, 0xE0200)]
    sparse = [*range(0xE000, 0xF900, 61), *range(0x20000, 0xE0000, 61), *range(0xE0200, 0x110000, 61)]
    for cp in dense + sparse:
        c = chr(cp)
        yield f"{c}A{c}a{c} {c}1{c}{c}!{c}\n{c}'{c}a'{c}Aa{c}A"


def long_runs(n=3000):
    """Words and runs of blanks far beyond what a vocabulary holds: merges go through the heap."""
    rng = random.Random(7)
    units = ["a", "A", "é", "日", " ", "\t", "\n", " \n", "1", "12", "!", "-", "=", "ab", "hello",
             "e\u0301", "🦙"]
    for unit in units:
        yield unit * n
        yield "x" + unit * (n // 7) + "y"
    for letters in ("abcdefgh", "etaoinshrdlu", "éèaeiou", "日本語中文", "0123456789", " \t\n",
                    "-=_*#"):
        yield "".join(rng.choices(letters, k=n))
