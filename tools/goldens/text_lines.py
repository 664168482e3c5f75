"""Lines of text that tokenizers find hard, the same on every run: words of two dozen scripts, emoji, code, control
characters, numbers, white space, and text that spells special tokens."""

from __future__ import annotations

import random
import unicodedata

SCRIPTS = {
    "latin": "the quick fox jumps over lazy dogs and naïve façade über straße coöperate Ångström œuvre łódź čeština ñandú İstanbul "
             "ıssız ijsvrij THE HTTPServer iPhone McDonald O'Neill don't we'll they've I'm he'd you're it's ’tis",
    "vietnamese": "tiếng Việt người đường phở bánh mì Hà Nội thành phố Hồ Chí Minh cảm ơn xin chào những được không",
    "cyrillic": "быстрая лиса прыгает через ленивую собаку Москва Київ їжак ґанок ѓакон њива љубов ђак ћирилица ӘӨҮ қазақ",
    "greek": "η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί Αθήνα ΣΊΣΥΦΟΣ ὀδύσσεια ἄνδρα μοι ἔννεπε",
    "armenian": "արագ աղվեսը ցատկում է ծույլ շան վրայով Երևան և մեծատառ ԱԲԳ",
    "georgian": "სწრაფი მელა ხტება ზარმაც ძაღლზე თბილისი საქართველო",
    "hebrew": "השועל המהיר קופץ מעל הכלב העצלן ירושלים שָׁלוֹם עולם תּוֹרָה",
    "arabic": "الثعلب السريع يقفز فوق الكلب الكسول القاهرة مُحَمَّد ﷺ لا إله ٱلْحَمْدُ کتاب پنجره گل چای",
    "devanagari": "तेज़ लोमड़ी आलसी कुत्ते के ऊपर कूदती है नई दिल्ली क्षेत्र ज्ञान श्रीमान हिन्दी संस्कृतम्",
    "bengali": "দ্রুত শিয়াল অলস কুকুরের উপর দিয়ে লাফ দেয় ঢাকা বাংলাদেশ ক্ষমা ৎ",
    "gurmukhi": "ਤੇਜ਼ ਲੂੰਬੜੀ ਆਲਸੀ ਕੁੱਤੇ ਉੱਤੋਂ ਛਾਲ ਮਾਰਦੀ ਹੈ ਪੰਜਾਬੀ",
    "gujarati": "ઝડપી શિયાળ આળસુ કૂતરા ઉપર કૂદે છે ગુજરાતી અમદાવાદ",
    "tamil": "விரைவான நரி சோம்பேறி நாயைத் தாண்டிக் குதிக்கிறது சென்னை தமிழ் ஸ்ரீ",
    "telugu": "వేగవంతమైన నక్క సోమరి కుక్క మీదుగా దూకుతుంది హైదరాబాదు తెలుగు",
    "kannada": "ವೇಗದ ನರಿ ಸೋಮಾರಿ ನಾಯಿಯ ಮೇಲೆ ಹಾರುತ್ತದೆ ಬೆಂಗಳೂರು ಕನ್ನಡ",
    "malayalam": "വേഗതയുള്ള കുറുക്കൻ മടിയനായ നായയുടെ മുകളിലൂടെ ചാടുന്നു കേരളം മലയാളം",
    "sinhala": "ඉක්මන් නරියා කම්මැලි බල්ලා උඩින් පනී ශ්‍රී ලංකාව සිංහල",
    "thai": "สุนัขจิ้งจอก กระโดดข้าม สุนัขขี้เกียจ กรุงเทพมหานคร ภาษาไทย น้ำ ๑๒๓",
    "lao": "ໝາຈິ້ງຈອກ ໂດດຂ້າມ ໝາຂີ້ຄ້ານ ວຽງຈັນ ພາສາລາວ",
    "khmer": "កញ្ជ្រោង លោតរំលង ឆ្កែខ្ជិល ភ្នំពេញ ភាសាខ្មែរ ១២៣",
    "burmese": "မြန်မာဘာသာ ရန်ကုန် မြေခွေး ပျင်းရိသော ခွေး ၁၂၃",
    "tibetan": "བོད་སྐད་ ལྷ་ས་ བཀྲ་ཤིས་བདེ་ལེགས། ༡༢༣",
    "ethiopic": "ፈጣን ቀበሮ በሰነፍ ውሻ ላይ ዘለለ አዲስ አበባ አማርኛ ፩፪፫",
    "cherokee": "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᎠᏂᏴᏫᏯ ᏩᏯ",
    "mongolian": "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ ᠤᠯᠠᠭᠠᠨᠪᠠᠭᠠᠲᠤᠷ",
    "hangul": "빠른 여우가 게으른 개를 뛰어넘는다 서울 대한민국 한국어 값싼 읊다 ㅋㅋㅋ ㅠㅠ",
    "japanese": "素早い狐が怠け者の犬を飛び越える 東京 ひらがな カタカナ ﾊﾝｶｸ 「引用」 ー々〆 です。ます！",
    "chinese": "敏捷的狐狸跳过懒狗 北京 你好，世界！ 繁體中文 臺灣 龘 𠮷野家 《红楼梦》 一二三",
    "georgian_old": "ႠႡႢႣ ⴀⴁⴂⴃ ᲐᲑᲒᲓ",
    "runes_gothic": "ᚠᚢᚦᚨᚱᚲ 𐌲𐌿𐍄𐌹𐍃𐌺 𐎠𐎡 𒀭𒂗𒆤 𓂀𓃠",
}
ENDS = [".", "!", "?", "...", ",", ";", ":", "。", "！", "؟", "।", " -- ", "—", "…", "\"", "'", ")", "]", "%", "/"]
EMOJI = ["😀", "😂", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇰🇷", "🇺🇦", "1️⃣", "❤️", "❤", "🧑🏿‍🚀", "🫠", "✈️", "☺︎", "🤷🏻‍♀️", "⌚", "🀄", "🅰️", "💯", "🥲", "㊗️", "™️", "©", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"]
CODE = [
    "def {a}({b}, *args, **kwargs):\n    return {b}[{n}:] + f\"{{{a}!r:>{n}}}\"",
    "for (int {a} = 0; {a} < {n}; ++{a}) {{\n\t{b}[{a}] <<= 0x{n:x}u;\n}}",
    "{{\"{a}\": [{n}, -{n}.5e-3, null, true], \"{b}\": {{}}}}",
    "<div class=\"{a}\" id='{b}'>&nbsp;&#{n};</div><!-- {a} -->",
    "SELECT {a}, COUNT(*) FROM {b} WHERE x >= {n} AND y != '';",
    "^(?:[A-Z]{{{n}}}|\\d+\\.{a}\\b)*?$ \\u00e9 \\x{n:02x} \\\\n",
    "$ {a} --{b}={n} | grep -vE '^#' > /dev/null 2>&1 && echo \"$?\"",
    "template <class {a}> auto&& {b}::operator()({a}&& x) const -> decltype(x) {{ return x->y; }} // {n}",
    "\\frac{{{a}_{{{n}}}}}{{\\sqrt{{{b}}}}} \\leq \\sum_{{i=0}}^{{\\infty}} x^i",
    "#include <{a}.h>\r\n#define {b}(x) ((x) ? {n} : ~{n})\r\n",
    "{a}.{b}?.[{n}] ?? ((x) => `${{x}}`)(1_000n); /* {a} */",
    "https://{a}.example.com:{n}/{b}/?q=%E2%9C%93&r=a+b#frag_{n}",
]
NAMES = ["foo", "barBaz", "snake_case", "kConst", "__init__", "x1", "HTTPRequest2", "été", "变量", "i"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>",
            "<start_of_turn>", "<end_of_turn>", "<|begin_of_text|>", "<|eot_id|>", "[INST]", "[/INST]", "<0x0A>", "<0xE2>", "▁", "▁▁", "Ġ",
            "Ċ", "##a", "<|tool|>", "<repo_name>", "<filename>", "[gMask]", "<sop>", "<unused0>"]
SPACES = [" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\u0085", "\v", "\f",
          "        ", " \n ", "\n \n"]
ODD = ["\ufeff", "\u200d", "\u200e", "\u202e", "\u2066", "\ue000", "\U000f0000", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\u0301", "e\u0301", "\u1e9b\u0323",
       "\u212b", "\ufb01", "\u0130", "\u017f", "'\u017f", "ǅ", "ʰ", "ⅷ", "½", "²", "₃", "٣", "๓", "𝟘", "𝒳", "Ω", "K", "\u0149", "한", "가", "각",
       "\u0f77", "\u0958", "\u2126", "\U0001d15e", "ﷺ", "Ꭰ", "ꭰ", "ẞ", "'S", "'LL", "'Re", "’s", "‘", "“", "”", "`", "´", "¨"]


def _number(r: random.Random) -> str:
    n = r.choice([r.randrange(10), r.randrange(1000), r.randrange(10**6), r.randrange(10**14)])
    return r.choice([f"{n}", f"{n:,}", f"-{n}", f"{n}.{r.randrange(1000):03d}", f"${n}", f"{n}%", f"0x{n:X}", f"{n}e-{r.randrange(30)}",
                     f"v{n % 10}.{n % 7}.{n % 90}", f"{n % 24:02d}:{n % 60:02d}", f"{n}th", f"№{n}", f"{n}/{n + 1}", f"({n})", f"{n}kg"])


def lines() -> list[str]:
    r = random.Random(20240229)
    out: list[str] = []

    def words(name: str, count: int) -> str:
        choice = SCRIPTS[name].split(" ")
        parts = [r.choice(choice) for _ in range(count)]
        return "".join(part + (r.choice(ENDS) if r.random() < 0.12 else "") + " " for part in parts).rstrip()

    for name in SCRIPTS:
        out += [words(name, r.randint(1, 9)) for _ in range(42)]
        out.append(unicodedata.normalize("NFD", words(name, 6)))
    scripts = list(SCRIPTS)
    for _ in range(120):  # scripts next to each other
        out.append("".join(words(r.choice(scripts), r.randint(1, 2)) + r.choice(["", " ", "-", "/"]) for _ in range(3)))
    for _ in range(130):
        out.append("".join(r.choice(EMOJI) + r.choice(["", "", " ", words("latin", 1)]) for _ in range(r.randint(1, 6))))
    for _ in range(200):
        out.append(r.choice(CODE).format(a=r.choice(NAMES), b=r.choice(NAMES), n=r.randrange(300)))
    for _ in range(120):
        out.append(r.choice(["", "a", "é"]) + "".join(chr(r.choice([*range(32), 127, *range(128, 160)])) + r.choice(["", "b", " "]) for _ in range(r.randint(1, 8))))
    for _ in range(150):
        out.append(r.choice(["", " "]).join(_number(r) for _ in range(r.randint(1, 5))))
    for _ in range(200):
        out.append("".join(r.choice(SPACES) * r.randint(1, 3) + r.choice(["", "x", "yz", "1", ".", "한"]) for _ in range(r.randint(1, 5))))
    for _ in range(220):
        parts = [r.choice(SPECIALS) if r.random() < 0.6 else words(r.choice(scripts), 1) for _ in range(r.randint(1, 6))]
        out.append(r.choice(["", " ", "\n"]).join(parts))
    for _ in range(40):  # tokens cut short, nested, doubled
        a, b = r.choice(SPECIALS), r.choice(SPECIALS)
        cut = r.randrange(1, len(a) + 1)
        out.append(r.choice([a[:cut], a[cut:], a[:cut] + b + a[cut:], a + a, a.upper(), " " + a + " ", a[:cut] + " " + a[cut:]]))
    for _ in range(160):
        out.append("".join(r.choice(ODD) + r.choice(["", "a", " ", words(r.choice(scripts), 1)]) for _ in range(r.randint(1, 5))))
    for word in ["a", "=", "-", " ", "ab", "한", "😀", "1", "\n", "!", "é", "the "]:
        out += [word * 17, word * 100]
    out += [" ".join(words(name, 12) for name in scripts)]
    return sorted({line for line in out if line}, key=out.index)
