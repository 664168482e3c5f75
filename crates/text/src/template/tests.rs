//! What the goldens of tests/text do not reach: limits, errors, and corners of the rewriting.

use super::*;
use crate::failure::Status;

const NOON: Clock = Clock { year: 2026, month: 11, day: 29, hour: 12, minute: 0, second: 0 };

fn render_with(source: &str, arguments: &str) -> Outcome<String> {
    Template::new("t", source)?.render(arguments.as_bytes(), NOON)
}

fn render(source: &str) -> String {
    match render_with(source, r#"{"a": 1, "s": "text", "d": {"items": 1, "k": [1, 2]}, "l": [3, 4]}"#) {
        Ok(text) => text,
        Err(failure) => format!("{:?}: {}", failure.status, failure.message),
    }
}

#[test]
fn statements_keep_their_jumps() {
    assert_eq!(
        render("{% for x in l %}[{{ x }}{% if not loop.last %},{% endif %}]{% else %}none{% endfor %}"),
        "[3,][4]"
    );
    assert_eq!(render("{% for x in [] %}x{% else %}none{% endfor %}"), "none");
    assert_eq!(render("{% for x in [1,2,3,4] if x != 2 %}{% if x == 4 %}{% break %}{% endif %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}"), "3");
    assert_eq!(render("{% macro f(x, y=2) %}<{{ x }}{{ y }}{{ caller() if caller }}>{% endmacro %}{{ f(1) }}{% call f(3) %}in{% endcall %}"), "<12><32in>");
    assert_eq!(
        render(
            "{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}"
        ),
        "7"
    );
    assert_eq!(render("{% set b %}<{{ s }}>{% endset %}{{ b ~ b }}"), "<text><text>");
    assert_eq!(render("{% for x in [[1,[2]]] recursive %}{{ x[0] if x is sequence else x }}{{ loop([x[1]]) if x is sequence and x|length > 1 }}{% endfor %}"), "12");
    assert_eq!(render("{% filter upper %}a{{ s }}{% endfilter %}"), "ATEXT");
    assert_eq!(render("{{ 1 < a + 1 <= 2 }}{{ 'x' if a > 1 }}"), "True");
    assert_eq!(
        render("{% if missing %}{% endif %}{% print a %}{% if a %}{% set z = 1 %}{% endif %}{{ z }}"),
        "11"
    );
    assert_eq!(render("{% with x = 1 %}{{ x }}{% endwith %}{{ x }}"), "1");
    assert_eq!(render("a{% generation %}{% set q = 1 %}b{%- endgeneration -%} c{{ q }}"), "abc");
    assert_eq!(render("{{ generation }}{{ 'endgeneration' }}"), "endgeneration");
}

#[test]
fn a_method_wins_over_an_item_of_its_name() {
    assert_eq!(
        render("{{ d.items() }}{{ d['items'] }}{{ d.k }}"),
        "dict_items([('items', 1), ('k', [1, 2])])1[1, 2]"
    );
    assert_eq!(render("{{ d['keys']() }}{{ d.update is defined }}"), "dict_keys(['items', 'k'])False");
}

/// What Jinja2 prints, where an interpreter that folds constants or has no tuples prints something else.
#[test]
fn values_are_pythons() {
    for (source, text) in [
        ("{{ '<\\/think>' }}", "<\\/think>"),
        ("{{ '\\U0001F600' }}", "😀"),
        ("{{ '' and 1 }}|{{ 0 or '' }}|{{ [] and 1 }}", "||[]"),
        ("{{ ['a'] ~ '' }}{{ none ~ 1 }}{{ (1,) ~ '' }}", "['a']None1(1,)"),
        ("{{ 25|round(-1) }} {{ 2.5|round }} {{ 2.31|round(1, 'ceil') }} {{ 7|round(0, 'floor') }}", "20 2.0 2.4 7.0"),
        ("{{ 'ff'|int(base=16) }}{{ '0x1f'|int(0, 16) }}{{ 'z'|int(5) }}", "255315"),
        ("{{ d|upper }}", "{'ITEMS': 1, 'K': [1, 2]}"),
        ("{{ (1, 2) }}{{ () }}{{ 1, 2 }}{{ ((1, 2),)[0] }}", "(1, 2)()(1, 2)(1, 2)"),
        ("{{ '{:>4}|{!r}|{a.k[1]}'.format(1, 'x', a=d) }}", "   1|'x'|2"),
        ("{{ 'banana'.find('a', 2) }}{{ 'banana'.count('a', -2) }}", "31"),
        ("{% macro f(x) %}{{ x }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, k=3) }}", "1(2,){'k': 3}"),
        ("{{ [1,2,3]|slice(2)|list }}", "[[1, 2], [3]]"),
        ("{{ 'a long text'|truncate(6, leeway=0) }}{{ 'a b'|wordcount }}{{ 'x'|center(3) }}{{ 'a b/ü'|urlencode }}", "a...2 x a%20b/%C3%BC"),
        ("{% set j = joiner() %}{{ j() }}a{{ j() }}b{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "a, b121"),
        ("{{ 'a' is lower }}{{ 'a' is upper }}", "TrueFalse"),
        ("{{ strftime_now('%_d|%-d|%e') }}", "29|29|29"),
        ("a\r\n{% if true %}\r\nb\rc{% endif %}\r\n", "a\nb\nc"),
        ("{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "['3', '4'][]"),
        ("{% macro f() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ f() }}{% set y = 2 %}{{ f() }}", "12"),
        ("{% set s = namespace(r='x') %}{% for m in [s] + l %}{{ m.r }}{% endfor %}{% set s.r = 2 %}{{ s }}", "x<Namespace {'r': 2}>"),
        ("{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ 7 // -2 }}{{ -7 % 3 }}", "644-42"),
        ("{{ '%s %r %05.1f' % (none, 'x', 2.25) }}{{ '%(a)s'|format(a=l) }}", "None 'x' 002.2[3, 4]"),
        ("{{ '<a>'|e }}{{ '<a>'|safe|upper }}", "&lt;a&gt;<A>"),
        ("{% for x in l %}{% break %}{% else %}none{% endfor %}", "none"),
        ("{% macro f() %}{% endmacro %}{{ a }}{% generation %}{{ varargs }}{% endgeneration %}", "1()"),
        ("{% filter upper %}{{ s }}{% endfilter %}{% set s = 1 %}{{ s }}{% if a %}{{ l }}{% set l = 2 %}{% endif %}", "1[3, 4]"),
        ("{{ range(3) }}{{ {1: 'a', true: 'b'} }}{{ 1 == 1.0 }}", "range(0, 3){1: 'b'}True"),
    ] {
        assert_eq!(render(source), text, "{source}");
    }
}

#[test]
fn what_python_refuses_is_refused() {
    for (source, says) in [
        ("{% for x in none %}{% endfor %}", "'NoneType' object is not iterable"),
        ("{{ 'a' + 1 }}", "unsupported operand type(s) for +: 'str' and 'int'"),
        ("{{ missing.x }}", "'missing' is undefined"),
        ("{{ d.k.append(1) }}", "append() changes its object"),
        ("{{ d.update({}) }}", "update() changes its object"),
        ("{{ [1, 'a']|sort }}", "not supported between instances"),
        ("{% macro f() %}{% endmacro %}{{ f(1) }}", "takes not more than 0"),
        ("{% set ns = namespace(_x=1) %}", "underscore"),
        ("{% set a.b = 1 %}", "non-namespace"),
        ("{{ missing|tojson }}", "not JSON serializable"),
        ("{{ range(1000000) }}", "Range too big"),
    ] {
        let failure = render_with(source, r#"{"a": 1, "d": {"k": [1]}}"#).unwrap_err();
        assert_eq!(failure.status, Status::BadRequest, "{source}: {failure}");
        assert!(failure.message.contains(says), "{source}: {failure}");
    }
}

#[test]
fn the_template_refuses_in_its_own_words() {
    for source in [
        "{{ raise_exception('roles must alternate') }}",
        "{% macro f() %}{{ raise_exception('roles must alternate') }}{% endmacro %}{{ f() }}",
    ] {
        let failure = render_with(source, "{}").unwrap_err();
        assert_eq!((failure.status, failure.message.as_str()), (Status::BadRequest, "roles must alternate"));
    }
}

#[test]
fn what_is_not_supported_is_named_with_its_line() {
    for (source, says) in [
        ("\n{{ s|random }}", "Unsupported: t:2: the filter random is not supported in a chat template"),
        ("{{ s|lovely }}", "the filter lovely, which Jinja2 does not know either, is not supported"),
        ("{% if s is lovely %}{% endif %}", "the test lovely is unknown"),
        ("{{ lipsum() }}", "lipsum() is not supported"),
        ("{{ s.encode() }}", "str.encode() is not supported"),
        ("{% include 'x' %}", "{% include %} is not supported"),
        ("{% block x %}{% endblock %}", "{% block %} is not supported"),
        ("{{ l|map('upper') }}", "printing a generator"),
        ("{{ '\\N{DASH}' }}", "\\N{...} is not supported"),
        ("{{ strftime_now('%Q') }}", "strftime_now's code %Q is not supported"),
        ("{{ ('<'|e) + '>' }}", "+ on the result of escape or safe is not supported"),
        ("{{ 10 ** 40 }}", "** with an integer beyond 128 bits is not supported"),
        ("{{ 'a' is sameas 'a' }}", "sameas of two equal values of type str is not supported"),
        ("{% if %}", "Unsupported: t:1: the chat template does not parse"),
        ("{% do 1 %}", "unknown tag 'do'"),
        ("{% break %}", "{% break %} outside of a loop"),
        ("{% for x in l %}", "{% endfor %} is missing"),
    ] {
        assert!(render(source).contains(says), "{source}: {}", render(source));
    }
    assert!(render_with("{{ a }}", "[1").unwrap_err().message.contains("JSON"));
}

/// Each of these would take hours, terabytes or the whole stack. The message says which bound it is.
#[test]
fn no_template_runs_away() {
    let looped = |body: &str| {
        format!("{{% set ns = namespace(x=[], s='ab') %}}{{% for i in range(100000) %}}{body}{{% endfor %}}")
    };
    let repeat = |inner: &str| {
        format!(
            "{{% for i in range(100000) %}}{{% for j in range(100000) %}}{inner}{{% endfor %}}{{% endfor %}}"
        )
    };
    let (steps, work, output) = ("20000000 steps", "512 MiB", "writes more than 32 MiB");
    let (values, calls) = ("nests values", "nests calls");
    let cases: Vec<(String, &str)> = vec![
        (repeat("{% if 1 %}{% endif %}"), steps),
        (repeat("{{ s }}"), ""),
        (format!("{{% set x %}}{}{{% endset %}}", repeat(&"raw text ".repeat(1000))), output),
        (looped("{% set ns.x = [ns.x] %}"), values),
        (looped("{% set ns.x = [ns.x, ns.x] %}"), values),
        (looped("{% set ns.x = cycler(ns.x) %}"), values),
        (looped("{% set ns.x = joiner(ns.x) %}"), values),
        (looped("{% for y in [ns.x] %}{% set ns.x = loop %}{% endfor %}"), values),
        (looped("{% set ns.x = namespace(x=ns.x) %}") + "{{ ns }}", "holds itself"),
        (looped("{% set ns.s = ns.s ~ ns.s %}"), work),
        (looped("{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"), output),
        (looped("{% set ns.s = ns.s.replace('a', ns.s) %}"), work),
        (looped("{% set ns.x = ns.x + [1] * 1000 %}"), work),
        ("{% set x = [1] %}".to_string() + &"{% set x = [x, x] %}".repeat(60) + "{{ x == x }}{{ x }}", ""),
        ("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns == ns }}{{ ns }}".into(), "holds itself"),
        ("{{ 'x' * 1000000000 }}".into(), work),
        ("{{ 'x' * 1000 * 1000 * 1000 }}".into(), work),
        ("{{ [1]|batch(10000000000, 0)|list }}".into(), work),
        ("{{ 'a\nb'|indent(1000000000000) }}".into(), work),
        ("{{ [[1]]|tojson(indent=1000000000000) }}".into(), work),
        ("{{ '%1000000000d' % 1 }}".into(), work),
        ("{{ '{:1000000000}'.format(1) }}".into(), work),
        ("{{ s.ljust(1000000000) }}".into(), work),
        ("{{ '\t'.expandtabs(1000000000) }}".into(), work),
        ("{% macro f(x) %}{{ f([x, x]) }}{% endmacro %}{{ f(1) }}".into(), ""),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into(), calls),
        ("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}".into(), calls),
        (format!("{{{{ {}1 }}}}", "1+".repeat(100_000)), "4096 tokens"),
        (format!("{{{{ s{} }}}}", "|list".repeat(100_000)), "4096 tokens"),
        (format!("{{{{ {}1{} }}}}", "(".repeat(1000), ")".repeat(1000)), "nest more than"),
        (format!("{{{{ {}1 }}}}", "not ".repeat(1000)), "nest more than"),
        (format!("{{{{ {}1 }}}}", "-".repeat(1000)), "nest more than"),
        (format!("{{{{ {}1 }}}}", "1 if 1 else ".repeat(1000)), "nest more than"),
        ("{% if 1 %}".repeat(10_000), "nest more than"),
        ("x".repeat(600 << 10), "the limit is"),
    ];
    for (source, says) in cases {
        let start = std::time::Instant::now();
        let failure = render_with(&source, r#"{"s": "text", "l": [1]}"#).map(|text| text.len()).unwrap_err();
        let shown: String = source.chars().take(80).collect();
        assert!(failure.message.contains(says), "{shown}: {failure}");
        assert!(start.elapsed().as_secs() < 20, "{shown}: {:?}", start.elapsed());
    }
}

#[test]
fn the_largest_legitimate_expressions_work() {
    assert_eq!(render(&format!("{{{{ {}1 }}}}", "a+".repeat(1000))), "1001");
    assert_eq!(render("{{ '=' * 40 }}").len(), 40);
    assert_eq!(render(&("{% if 1 %}".repeat(40) + &"{% endif %}".repeat(40))), "");
    let text = format!("[{}0]", "[1],".repeat(100));
    assert_eq!(render(&format!("{{{{ {text}|length }}}}")), "101");
    assert_eq!(render("{% macro f(n) %}{{ f(n - 1) if n }}.{% endmacro %}{{ f(200)|length }}"), "201");
}
