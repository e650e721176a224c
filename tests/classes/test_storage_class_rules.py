"""A class as it is used."""

import pytest

from provisioner.classes.storage_class_parameter_rules import Parameters
from provisioner.classes.storage_class_rules import read
from provisioner.model.driver import IN_TREE_DRIVER
from tests.builders import a_class, a_term


def test_a_class_is_read_with_its_topologies():
    term = a_term(zone=["us-east-1a"])
    storage_class = a_class(parameters={"type": "st1"}, allowed=[term])

    found = read(storage_class)

    assert (found.name, found.storage_class) == ("fast", storage_class)
    assert found.parameters == Parameters(volume_type="st1")
    assert found.allowed_topologies == (term,)
    assert not found.is_in_tree


def test_a_class_without_parameters_means_all_defaults():
    found = read(a_class())

    assert found.parameters == Parameters()
    assert found.allowed_topologies == ()


def test_a_class_of_the_in_tree_plugin_is_told_apart():
    found = read(a_class(provisioner=IN_TREE_DRIVER, parameters={"type": "gp2"}))

    assert found.is_in_tree
    assert found.parameters.volume_type == "gp2"


def test_a_class_that_cannot_be_read_says_why():
    with pytest.raises(ValueError, match="unknown parameter 'tpye'"):
        read(a_class(parameters={"tpye": "gp3"}))
