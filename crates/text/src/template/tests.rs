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
    assert_eq!(render("{% with x = 1 %}{{ x }}{% endwith %}{{ x }}"), "1");
    assert_eq!(render("a{% generation %}{% set q = 1 %}b{%- endgeneration -%} c{{ q }}"), "abc");
    assert_eq!(render("{{ generation }}{{ 'endgeneration' }}"), "endgeneration");
}

#[test]
fn a_method_wins_over_an_item_of_its_name() {
    assert_eq!(render("{{ d.items() }}{{ d['items'] }}{{ d.k }}"), "[['items', 1], ['k', [1, 2]]]1[1, 2]");
}

#[test]
fn values_print_as_python_prints_them() {
    assert_eq!(
        render("{{ [true, none, 1.0, 'a\\'b'] }}{{ none }}{{ missing }}{{ false ~ none }}"),
        "[True, None, 1.0, \"a'b\"]NoneFalseNone"
    );
    assert_eq!(
        render("{{ l|join('-') }}{{ [none, true]|join(',') }}{{ {'a': l}|string }}"),
        "3-4None,True{'a': [3, 4]}"
    );
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
fn what_is_unknown_is_named_with_its_line() {
    assert_eq!(
        render("\n{{ s|wordcount }}"),
        "Unsupported: t:2: the chat template fails: filter wordcount is unknown"
    );
    assert!(render("{% if s is lovely %}{% endif %}").contains("test lovely is unknown"));
    assert!(render("{{ lipsum() }}").contains("lipsum is unknown"));
    assert!(render("{{ s.encode() }}").contains("no method named encode"));
    assert!(render("{% include 'x' %}").contains("no use for {% include %}"));
    assert!(render("{% if %}").starts_with("Unsupported: t:1: the chat template does not parse"));
    assert!(render("{{ missing.x }}").starts_with("BadRequest: t:1: the chat template fails"));
    assert!(render_with("{{ a }}", "[1").unwrap_err().message.contains("JSON"));
}

/// Each of these would take hours, terabytes or the whole stack.
#[test]
fn no_template_runs_away() {
    let nested =
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}"
            .to_string();
    let doubled = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x }}".to_string();
    let cyclic = "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns == ns }}".to_string();
    let repeat = |inner: &str| {
        format!(
            "{{% for i in range(100000) %}}{{% for j in range(100000) %}}{inner}{{% endfor %}}{{% endfor %}}"
        )
    };
    let raw = format!("{{% set x %}}{}{{% endset %}}", repeat(&"raw text ".repeat(1000)));
    let cases = [
        repeat(""), repeat("{{ s }}"), raw, nested, doubled, cyclic,
        "{{ 'x' * 1000000000 }}".into(), "{{ 'x' * 1000 * 1000 * 1000 }}".into(), "{{ s * 1000000000 }}".into(),
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}".into(),
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}".into(),
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}".into(),
        "{{ range(1000000000000) }}".into(), "{{ [1]|batch(10000000000, 0) }}".into(),
        "{{ s|indent(1000000000000) }}{{ 'a\nb'|indent(1000000000000) }}".into(), "{{ [[1]]|tojson(indent=1000000000000) }}".into(),
        "{% macro f(x) %}{{ f([x, x]) }}{% endmacro %}{{ f(1) }}".into(), "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into(),
        format!("{{{{ {}1 }}}}", "1+".repeat(100_000)), format!("{{{{ s{} }}}}", "|list".repeat(100_000)),
        format!("{{{{ s{} }}}}", ".a".repeat(100_000)), format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("{{{{ l{} }}}}", "|batch(1)".repeat(500)),
        "{% if 1 %}".repeat(10_000), "x".repeat(600 << 10),
    ];
    for source in cases {
        let start = std::time::Instant::now();
        let failure = render_with(&source, r#"{"s": "text", "l": [1]}"#).map(|text| text.len()).unwrap_err();
        let shown: String = source.chars().take(80).collect();
        assert!(!failure.message.is_empty());
        assert!(start.elapsed().as_secs() < 20, "{shown}: {:?}", start.elapsed());
    }
}

#[test]
fn the_largest_legitimate_expressions_work() {
    assert_eq!(render(&format!("{{{{ {}1 }}}}", "a+".repeat(1000))), "1001");
    assert_eq!(render("{{ '=' * 40 }}").len(), 40);
    assert_eq!(render(&"{% if 1 %}".repeat(40)).is_empty(), false);
    let text = format!("[{}0]", "[1],".repeat(100));
    assert_eq!(render(&format!("{{{{ {text}|length }}}}")), "101");
}
