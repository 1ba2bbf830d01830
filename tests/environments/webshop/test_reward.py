"""The reward of agentgym:webshop, each of its terms alone and together."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from headgate.core import errors
from headgate_environments.webshop import reward as rule
from headgate_environments.webshop.catalogue import catalogue
from headgate_environments.webshop.environment import shopping_task
from headgate_environments.webshop.reward import Goods, Wish, are_alike, base_colour, reward_of, type_factor

LAMP = Goods(
    query="desk lamp",
    categories=frozenset(("Home", "Lighting", "desk lamp")),
    nouns=frozenset(("corlux", "desk", "lamp", "office", "study")),
    attributes=("dimmable light", "warm glow"),
    texts=("corlux desk lamp, warm glow, for office and study", "flicker free", "with a timer function"),
)
WISH = Wish(LAMP, ("dimmable light", "flicker free"), ("navy blue", "brass"), 40.0)
FAR = {"query": "other", "categories": frozenset(("Garden",))}


def worth(goods=LAMP, price=39.99, chosen=("navy blue", "brass"), wish=WISH):
    return reward_of(goods, price, chosen, wish).value


def test_what_was_wanted_earns_everything():
    assert worth() == 1.0


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ({"price": 40.0}, 1.0),
        ({"price": 40.01}, 4 / 5),
        ({"chosen": ()}, 3 / 5),
        ({"chosen": ("brass",)}, 4 / 5),
        ({"chosen": ("brass", "brass")}, 4 / 5),
        ({"chosen": ("copper", "cherry red")}, 3 / 5),
        ({"goods": replace(LAMP, attributes=())}, 4 / 5),
        ({"goods": replace(LAMP, texts=())}, 4 / 5),
        ({"goods": replace(LAMP, attributes=(), texts=())}, 3 / 5),
        ({"goods": replace(LAMP, attributes=(), texts=()), "chosen": (), "price": 41.0}, 0.0),
        ({"wish": replace(WISH, options=()), "chosen": ()}, 1.0),
        ({"goods": replace(LAMP, nouns=frozenset(("sofa",)))}, 0.0),
    ],
)
def test_each_term_counts_by_itself(changed, value):
    assert worth(**changed) == pytest.approx(value)


@pytest.mark.parametrize(
    ("bought", "factor"),
    [
        ({}, 1.0),
        ({**FAR, "nouns": frozenset(("desk", "lamp"))}, 1.0),
        ({**FAR, "nouns": frozenset(("lamp",))}, 0.5),
        ({**FAR, "query": "desk lamp", "nouns": frozenset(("lamp",))}, 1.0),
        ({**FAR, "categories": frozenset(("Home", "Lighting")), "nouns": frozenset(("lamp",))}, 1.0),
        ({**FAR, "categories": frozenset(("Home", "Decor")), "nouns": frozenset(("lamp",))}, 0.5),
        ({"nouns": frozenset()}, 0.0),
    ],
    ids=["the same", "a fifth and more", "a fifth", "same query", "same shelf", "same department", "nothing in common"],
)
def test_the_type_counts_by_query_shelf_and_nouns(bought, factor):
    assert type_factor(replace(LAMP, **bought), LAMP) == factor


def test_less_than_a_tenth_of_the_nouns_counts_a_tenth_even_for_the_same_query():
    long = replace(LAMP, nouns=frozenset(map(str, range(11))))
    assert type_factor(replace(LAMP, nouns=frozenset(("0",))), long) == 0.1
    assert type_factor(replace(LAMP, nouns=frozenset(("0", "1"))), long) == 1.0


def test_a_title_without_nouns_is_judged_by_query_and_shelf():
    nameless = replace(LAMP, nouns=frozenset())
    assert type_factor(nameless, nameless) == 1.0
    assert type_factor(replace(nameless, **FAR), nameless) == 0.5


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("navy blue", "Navy-Blue!", True),
        ("large", "x-large", True),
        ("warm glow", "glow warm and soft", True),
        ("water resistant", "water-resistant é", True),
        ("size 8", "size 9", False),
        ("dimmable", "dimmer", False),
        ("", "", False),
        ("é", "ü", False),
    ],
)
def test_texts_are_compared_as_thefuzz_compares_them(one, other, alike):
    assert are_alike(one, other) is are_alike(other, one) is alike


def test_shades_of_a_colour_are_that_colour():
    assert base_colour("navy blue") == base_colour("sky blue") == "blue"
    assert base_colour("brass") == "brass"
    assert worth(chosen=("sky blue", "brass")) == 1.0


def test_no_other_kind_fulfils_an_instruction():
    for index in range(0, 12_000, 600):
        task = shopping_task(index)
        for product in catalogue():
            if product.kind is not task.product.kind and type_factor(product.goods, task.wish.goods) > 0.0:
                assert reward_of(product.goods, product.price, task.options, task.wish).value <= 0.5


def test_without_rapidfuzz_the_extra_is_named(monkeypatch):
    def absent():
        raise ModuleNotFoundError

    assert importlib.util.find_spec("rapidfuzz")
    monkeypatch.setattr(rule, "_rapidfuzz", absent)
    with pytest.raises(errors.MissingExtraError, match=r"'agentgym:webshop' needs the optional extra 'environments'"):
        rule.require_rapidfuzz()
