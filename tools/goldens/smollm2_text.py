"""The texts that SmolLM2 is run over."""

PASSAGE = (
    "The harbour had been quiet since the ferry stopped running in October. Two boats were left on the slip, "
    "a blue one that belonged to the schoolteacher and a grey one that nobody claimed, and in the evenings the "
    "gulls sat along their rails as if they had paid for the seats. Ingrid kept the key to the boathouse on a "
    "nail beside her kitchen door, together with a whistle, a folded map of the bay, and a torch whose battery "
    "had to be warmed in the hand before it would give any light. She had promised her brother that she would "
    "not go out alone before spring. On the ninth of November, at a quarter past six, the telephone rang. It "
    "was the keeper of the lighthouse on the far side of the sound, an old man named Aksel who disliked the "
    "telephone so much that he had not used it in eleven years. He told her three things. The lamp had failed. "
    "The spare lens was in the boathouse, in the green crate under the nets. And a ship with forty passengers "
    "would pass the reef at nine. Ingrid looked at the clock, then at the window, where the first snow of the "
    "winter was coming down in large slow flakes that melted on the glass. She took the key, the whistle, the "
    "map and the torch. She wrote a line to her brother on the back of an envelope and leaned it against the "
    "lamp. Then she went down the steps to the slip, chose the grey boat because its oars were longer, and"
)

PLAIN: list[tuple[str, str]] = [
    ("capital", "The capital of France is"),
    ("sum", "2 + 2 equals"),
    ("word", "Hello"),
    ("python", 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'),
    ("passage", PASSAGE),
    ("french", "Il était une fois, dans un petit village près de la mer, une vieille femme qui"),
    ("mixed-scripts", "Good morning in other languages: Guten Morgen, 早上好, доброе утро, おはよう, صباح الخير 🌅,"),
    ("list", "Things to pack for a week in the mountains:\n1. Warm socks\n2. A map\n3."),
    ("json", '{"name": "Ada Lovelace", "born": 1815, "fields": ["mathematics",'),
    ("markdown-table", "| Planet | Moons |\n|---|---|\n| Earth | 1 |\n| Mars | 2 |\n| Jupiter |"),
]

CHATS: list[tuple[str, list[dict[str, str]]]] = [
    ("chat", [{"role": "user", "content": "What is the tallest mountain on Earth?"}]),
    (
        "chat-system",
        [
            {"role": "system", "content": "You are a patient gardener. Answer in two sentences."},
            {"role": "user", "content": "When should I plant garlic?"},
            {"role": "assistant", "content": "Plant it in autumn, a few weeks before the ground freezes."},
            {"role": "user", "content": "And how deep?"},
        ],
    ),
]

PERPLEXITY_TEXT = (
    "Bread begins with four things that cost almost nothing: flour, water, salt and time. The first three can be "
    "bought, and the fourth is where most beginners try to save. A dough that is hurried with extra yeast and a warm "
    "oven will rise within an hour, and it will look like bread, but it will taste of very little, because flavour is "
    "made slowly by yeast and bacteria as they break the starch of the flour into sugars and the sugars into acids "
    "and alcohol. Leave the same dough in a cool room overnight and you will smell the difference before you open "
    "the oven.\n\n"
    "Weigh everything. A cup of flour can hold anything between 110 and 160 grams, depending on how it was filled, "
    "and a dough with 70 percent water behaves quite differently from one with 60. Bakers therefore write recipes as "
    "percentages of the flour: for a simple loaf, 500 grams of flour, 350 grams of water (70 percent), 10 grams of "
    "salt (2 percent) and 1 gram of dried yeast. Mix until no dry flour is left, cover the bowl, and wait half an "
    "hour. During this rest the flour takes up the water and the proteins begin to link into gluten without any work "
    "from you. Then fold the dough: wet one hand, lift a quarter of it, stretch it upward and lay it over the rest, "
    "turn the bowl, and repeat until you have gone around once. Do this three times at intervals of thirty minutes. "
    "The dough will change from a rough paste into something smooth that holds its shape.\n\n"
    "How do you know when it is ready? Not by the clock. Look for a dough that has grown by about three quarters, "
    "that is domed at the edge, and that trembles when you shake the bowl. Shape it gently, so that the gas stays "
    "inside, and put it into a floured basket for an hour, or into the refrigerator until the morning. Heat the oven "
    "to 240 degrees with a heavy iron pot inside. Turn the loaf into the pot, cut the top once with a sharp blade, "
    "put the lid on, and bake it for twenty minutes; then take the lid off and bake for another twenty, until the "
    "crust is the colour of chestnuts. The lid keeps the steam in, and the steam keeps the crust soft long enough "
    "for the loaf to open. The hardest part comes last: let it cool for an hour before you cut it, for inside the "
    "bread is still cooking."
)
