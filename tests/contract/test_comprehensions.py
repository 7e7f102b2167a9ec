"""tools/check_comprehensions.py finds a second `for` or `if`, and nothing else."""

from support import load_script

SOURCE = """
[a for b in c for a in b]
{a for a in b if a if c}
{a: [b for b in a] for a in c if a}
sum(a for b in c for a in b)
"""


def test_comprehensions_with_two_for_or_if_are_found():
    find_long = load_script("tools/check_comprehensions.py").find_long
    assert list(find_long(SOURCE)) == [2, 3, 5]
