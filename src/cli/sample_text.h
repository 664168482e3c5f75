// What an export measures activations on when it is given no text of the user's.
#pragma once

namespace pd::cli {

// Plain prose, a dialogue, code, numbers and other scripts: what prompts are made of. UTF-8.
inline constexpr const char* kSampleText =
    "The harbour was quiet when the first boats came back. Anna counted the crates twice, wrote 47 in the "
    "book, and asked her brother why the nets were torn. \"There was ice beyond the point,\" he said, \"and "
    "we had no light.\" She looked at the sky, which was turning from grey to a pale yellow, and decided "
    "that "
    "nobody would sail again before noon.\n\n"
    "Question: A train leaves at 08:15 and travels 210 km at 84 km/h. When does it arrive?\n"
    "Answer: 210 / 84 = 2.5 hours, so it arrives at 10:45.\n\n"
    "```python\ndef mean(values):\n    total = 0.0\n    for v in values:\n        total += v\n"
    "    return total / len(values) if values else None\n```\n\n"
    "| year | city    | people  |\n|------|---------|---------|\n| 1950 | Lisbon  | 790,434 |\n"
    "| 1990 | Toronto | 635,395 |\n\n"
    "Les abeilles ne dorment pas toutes en m\xC3\xAAme temps; certaines gardent la ruche. "
    "\xE6\x98\xA5\xE3\x81\xAF\xE3\x81\x82\xE3\x81\x91\xE3\x81\xBC\xE3\x81\xAE\xE3\x80\x82 "
    "\xD0\x97\xD0\xB8\xD0\xBC\xD0\xBE\xD0\xB9 \xD1\x81\xD0\xBD\xD0\xB5\xD0\xB3 "
    "\xD0\xBB\xD0\xB5\xD0\xB6\xD0\xB8\xD1\x82 \xD0\xB4\xD0\xBE "
    "\xD0\xB0\xD0\xBF\xD1\x80\xD0\xB5\xD0\xBB\xD1\x8F.\n\n"
    "Photosynthesis turns carbon dioxide and water into glucose and oxygen. The light reactions take place "
    "in "
    "the thylakoid membranes, where chlorophyll absorbs photons and drives electrons along a chain of "
    "carriers; the Calvin cycle then fixes carbon in the stroma.";

}  // namespace pd::cli
