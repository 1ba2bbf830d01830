"""The goods of agentgym:webshop: always the same, and written so that the reward tells them apart."""

from __future__ import annotations

import hashlib
import itertools

from headgate_environments.webshop.catalogue import PRODUCTS_PER_KIND, catalogue, kinds
from headgate_environments.webshop.environment import INSTRUCTIONS, MAX_ROUNDS, shopping_task
from headgate_environments.webshop.reward import BASE_COLOURS, are_alike, base_colour

CATALOGUE_DIGEST = "8c663e172465fafb"
TASKS_DIGEST = "b372fee87bc04116"


def digest(things):
    return hashlib.sha256("\n".join(map(repr, things)).encode()).hexdigest()[:16]


def test_the_catalogue_is_what_it_was():
    told = [
        (product.item_id, product.title, product.description, product.features, product.options, product.price_cents)
        for product in catalogue()
    ]
    assert digest(told) == CATALOGUE_DIGEST, "other products are other tasks: the environment needs another name"


def test_the_instructions_are_what_they_were():
    told = [shopping_task(index) for index in range(0, INSTRUCTIONS, 13)]
    assert digest((task.instruction, task.product.item_id) for task in told) == TASKS_DIGEST, (
        "the same index is not the same task any more: the environment needs another name"
    )


def test_every_product_has_an_id_of_its_own():
    assert len({product.item_id for product in catalogue()}) == len(catalogue()) == len(kinds()) * PRODUCTS_PER_KIND


def test_no_two_values_or_attributes_of_a_kind_are_alike():
    for kind in kinds():
        for one, other in itertools.combinations(kind.attributes, 2):
            assert not are_alike(one, other), kind.name
        for (_, values), (_, others) in itertools.combinations(kind.options, 2):
            both = [(base_colour(one), base_colour(other)) for one in values for other in others]
            assert [pair for pair in both if are_alike(*pair)] == [], kind.name
        for name, values in kind.options:
            for one, other in itertools.combinations(values, 2):
                assert name == "colour" or not are_alike(base_colour(one), base_colour(other)), kind.name


def test_a_product_comes_in_one_shade_of_a_colour_and_nothing_else_is_taken_for_a_colour():
    for product in catalogue():
        for name, values in product.options:
            bases = [base_colour(value) for value in values]
            assert len(set(bases)) == len(values)
            assert set(bases) <= set(BASE_COLOURS) if name == "colour" else tuple(bases) == values


def test_kinds_of_one_shelf_share_no_noun_and_others_one_at_most():
    nouns = {kind: {*kind.name.split(), *kind.uses} for kind in kinds()}
    for one, other in itertools.combinations(kinds(), 2):
        assert len(nouns[one] & nouns[other]) <= (one.path != other.path), (one.name, other.name)


def test_no_brand_makes_two_kinds():
    makers = {(product.brand, product.kind.name) for product in catalogue()}
    assert len({brand for brand, _ in makers}) == len(makers)


def test_every_product_can_be_bought_in_the_rounds():
    for index in range(0, INSTRUCTIONS, 17):
        assert len(shopping_task(index).actions()) <= MAX_ROUNDS


def test_what_is_asked_for_is_told():
    for index in range(0, INSTRUCTIONS, 101):
        task = shopping_task(index)
        told = (task.product.kind.name, *task.wish.attributes, *task.wish.options, f"{task.wish.price_upper:.2f}")
        assert all(part in task.instruction for part in told)
        assert task.product.price < task.wish.price_upper <= task.product.price + 40
        assert set(task.wish.attributes) <= set(task.product.attributes)
