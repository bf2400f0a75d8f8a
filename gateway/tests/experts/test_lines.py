"""Where keys stand in a TOML file."""

from __future__ import annotations

from mild_gateway.experts.config_file import key_lines, line_of

TEXT = """\
top = 1  # [not.a.table]
[a."b.c"]   # comment
x = "[no]"
long = '''
[d]
y = 2
'''
"quoted key" = 3
e.f = 4
[[many]]
z = 5
"""


def test_tables_and_keys_are_found_and_long_strings_are_not_looked_into():
    lines = key_lines(TEXT)
    assert lines == {
        ("top",): 1,
        ("a", "b.c"): 2,
        ("a", "b.c", "x"): 3,
        ("a", "b.c", "long"): 4,
        ("a", "b.c", "quoted key"): 8,
        ("a", "b.c", "e", "f"): 9,
        ("many",): 10,
        ("many", "z"): 11,
    }


def test_a_key_without_a_line_of_its_own_has_that_of_what_is_around_it():
    lines = key_lines("[experts]\nsmall = {model = 1, extra = {seed = 2}}\n")
    assert line_of(lines, ("experts", "small", "extra", "seed")) == 2
    assert line_of(lines, ("nothing",)) is None


def test_a_table_that_is_only_implied_has_the_line_of_its_first_part():
    assert line_of(key_lines("\n[experts.small]\nmodel = 1\n"), ("experts",)) == 2
