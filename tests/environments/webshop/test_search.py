"""The search of agentgym:webshop: what is found, and in which order."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headgate_environments.webshop.catalogue import MAX_HITS, MAX_WORDS, SearchIndex, catalogue, search, words_in
from headgate_environments.webshop.environment import shopping_task


def test_rare_words_count_more_and_short_documents_before_long_ones():
    index = SearchIndex(["red lamp", "blue lamp", "green lamp", "blue lamp with a long shade of glass", "stool"])
    assert index.hits("blue lamp") == [1, 3, 0, 2]
    assert index.hits("stool lamp")[0] == 4


def test_equal_documents_come_in_their_order():
    assert SearchIndex(["lamp"] * 5 + ["stool"]).hits("lamp") == [0, 1, 2, 3, 4]


def test_the_order_of_the_words_does_not_matter():
    assert search("boots hiking rubber sole") == search("SOLE, rubber: hiking boot!")


@pytest.mark.parametrize("text", ["", " ", "the with and", "zzzz", "[]{}'\"\\", "\x00", "靴"])
def test_what_is_not_sold_finds_nothing(text):
    assert search(text) == ()


def test_at_most_so_many_are_found():
    assert len(search("boots")) == MAX_HITS
    assert len(SearchIndex(["lamp", "stool"]).hits("lamp")) == 1


def test_words_beyond_the_bound_are_not_looked_up():
    many = " ".join(f"word{number}" for number in range(MAX_WORDS))
    assert search(f"{many} boots") == ()
    assert search(f"{many.rpartition(' ')[0]} boots")


def test_words_are_small_and_singular():
    assert words_in("Hiking BOOTS for glass, usb-cords") == ["hiking", "boot", "glass", "usb", "cord"]


def test_a_title_finds_its_product_on_the_first_page():
    for product in catalogue()[::23]:
        assert product in search(product.title)[:10]


def test_an_instruction_finds_what_it_asks_for():
    places = [search(task.instruction).index(task.product) for task in map(shopping_task, range(0, 12_000, 150))]
    assert max(places) < MAX_HITS
    assert sum(place < 10 for place in places) > 0.9 * len(places)


def test_hits_do_not_depend_on_how_strings_are_hashed():
    words = ("blue boots", "glass oak leak proof 3 feet")
    program = (
        "import sys; from headgate_environments.webshop.catalogue import search;"
        "print(*[product.item_id for text in sys.argv[1:] for product in search(text)])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=os.environ | {"PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == [product.item_id for text in words for product in search(text)]
